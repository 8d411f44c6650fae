"""Merge the gateway's model calls and the tool calls into a trajectory's steps."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from agentgym.core.tools import (
    ToolOutcome,
    ToolSpec,
    check_call,
    parse_arguments,
    result_text,
    same_arguments,
)
from agentgym.core.trajectory import (
    ENDED,
    FORM,
    OWN,
    ModelCall,
    RequestedCall,
    Step,
    ToolCall,
)
from agentgym.integrations.offered import check_offered, offered_functions
from agentgym.scenarios.tool_tasks.unseen import UnseenSpec, learn_schemas

NOT_RUN = "(the agent ended before this call ran)"


def assemble_steps(
    model_calls: Sequence[ModelCall],
    tool_calls: Sequence[ToolCall],
    specs: dict[str, ToolSpec],
    *,
    came_to_end: bool = False,
    answered_by_agent: Collection[str] = (),
) -> list[Step]:
    """Insert the outcomes of tool calls after the model calls that requested them.

    A tool call is checked in two ways, for all frameworks alike. First, as it was
    written: was the tool offered, and do the arguments fit the tool's original schema?
    Second, by its outcome: it ran, was refused, or broke a rule.

    - A call that the framework rejected has only the first check. A call of the agent's
      own tool, e.g. a hand-off to another agent, has only the first check too, with the
      schema that the request offered.
    - A call that the agent's own code replaced by another call is left out.
    - A call in a form, of the only tool of a request that requires a call, counts as
      made where nothing runs it or answers it: the agent's code reads it and goes on.
    - A call that ends the agent, e.g. of a tool ``Done``, counts as made although
      nothing ran. It is the only call of the last answer, and its tool never ran.
    """
    for asked in model_calls:
        learn_schemas(specs.values(), asked.tools)
    judged = [_judge(call, specs) for call in model_calls]
    pending = list(tool_calls)
    outcomes: dict[_Requested, ToolCall] = {}
    every = [call for calls in judged for call in calls]
    # Valid calls take their results first; other calls may take the remaining ones.
    for call in sorted(every, key=lambda call: call.outcome is not ToolOutcome.OK):
        outcomes[call] = call.with_what_ran(pending)
    ran = {call.call.name for call in every if not _did_not_run(outcomes[call])}
    last = judged[-1] if judged and came_to_end else []
    if len(last) == 1 and last[0].call.name not in ran:
        made = outcomes[last[0]]
        if _did_not_run(made):
            ended = {"outcome": ToolOutcome.OK, "result": ENDED}
            outcomes[last[0]] = made.model_copy(update=ended)
    in_forms = (_form(*pair) for pair in zip(model_calls, judged, strict=True))
    unread = (c for c in in_forms if c is not None and c.call.name not in ran)
    forms = [call for call in unread if _did_not_run(outcomes[call])]
    answers = _answers(model_calls) if answered_by_agent or forms else {}
    for call in forms:
        if call.call.id not in answers:
            seen = {"outcome": ToolOutcome.OK, "result": FORM}
            outcomes[call] = outcomes[call].model_copy(update=seen)
    for call, made in outcomes.items():
        name, answer = call.call.name, answers.get(call.call.id)
        if answer is None or not _did_not_run(made):
            continue
        if name in answered_by_agent and name not in ran:
            seen = {"outcome": ToolOutcome.OK, "result": answer}
            outcomes[call] = made.model_copy(update=seen)
    known = _known_later(model_calls)
    steps: list[Step] = []
    for model_call, calls, later in zip(model_calls, judged, known, strict=True):
        steps.append(model_call)
        steps.extend(
            outcomes[call]
            for call in calls
            if later is None
            or call.call.id in later
            or not (_did_not_run(outcomes[call]) and call.call.name in ran)
        )
    steps.extend(pending)  # made by the agent's own code, not requested by the model
    return steps


def _known_later(model_calls: Sequence[ModelCall]) -> list[set[str] | None]:
    """Return for each model call the ids of tool calls in later requests."""
    found: list[set[str] | None] = []
    later: set[str] | None = None
    for call in reversed(model_calls):
        found.append(None if later is None else set(later))
        mentioned = {
            str(m["tool_call_id"]) for m in call.messages if "tool_call_id" in m
        }
        for message in call.messages:
            made = message.get("tool_calls") or ()
            mentioned |= {str(each.get("id")) for each in made}
        later = mentioned | (later or set())
    return found[::-1]


def _answers(model_calls: Sequence[ModelCall]) -> dict[str, str]:
    """Return the tool results that the requests contain, by tool call id."""
    return {
        str(message["tool_call_id"]): result_text(message.get("content") or "")
        for call in model_calls
        for message in call.messages
        if "tool_call_id" in message
    }


@dataclass(frozen=True, eq=False)
class _Requested:
    """A tool call of the model, and the result of its check."""

    call: RequestedCall
    spec: ToolSpec | None  # None for the agent's own tools
    outcome: ToolOutcome
    reason: str

    def with_what_ran(self, pending: list[ToolCall]) -> ToolCall:
        """Return the call with its outcome, which is taken out of ``pending``."""
        call, outcome, reason = self.call, self.outcome, self.reason
        arguments = parse_arguments(call.arguments)
        valid = outcome is ToolOutcome.OK
        named = [c for c in pending if c.name == call.name]
        unnamed = [c for c in named if c.id is None]
        ran = next((c for c in named if c.id == call.id), None) or next(
            (c for c in unnamed if _same(self.spec, c.arguments, arguments)),
            unnamed[0] if unnamed and valid else None,
        )
        if ran is not None:
            pending.remove(ran)
            if outcome is not ToolOutcome.UNKNOWN_TOOL:  # not offered, but it ran
                outcome = ran.outcome
            return ran.model_copy(update={"id": call.id, "outcome": outcome})
        if valid and self.spec is not None:
            outcome, reason = ToolOutcome.RAISED, NOT_RUN
        return ToolCall(
            id=call.id,
            name=call.name,
            arguments=arguments,
            outcome=outcome,
            result=f"Error: {reason}" if reason else OWN,
        )


def _form(asked: ModelCall, calls: "list[_Requested]") -> "_Requested | None":
    """Return the call of an answer whose request required a call of its only tool."""
    is_form = asked.wants_call and len(asked.tools) == len(calls) == 1
    return calls[0] if is_form else None


def _did_not_run(call: ToolCall) -> bool:
    return call.outcome is ToolOutcome.RAISED and call.result == f"Error: {NOT_RUN}"


def _judge(call: ModelCall, specs: Mapping[str, ToolSpec]) -> list[_Requested]:
    """Check whether the calls of one answer fit the tools that the request offered."""
    offered = offered_functions(call.tools)
    known = {name: spec for name, spec in specs.items() if name in offered}
    judged: list[_Requested] = []
    for asked in call.tool_calls:
        is_own = isinstance(specs.get(asked.name), UnseenSpec | None)
        if asked.name in offered and is_own:
            found = check_offered(offered[asked.name], asked.arguments)
        else:
            found = check_call(known, asked.name, asked.arguments)
        judged.append(_Requested(asked, specs.get(asked.name), *found))
    return judged


def _same(
    spec: ToolSpec | None, ran: dict[str, Any] | None, written: dict[str, Any] | None
) -> bool:
    """Return whether two calls have equal arguments; None stands for malformed ones."""
    if ran is None or written is None:
        return ran is written
    return same_arguments(spec, ran, written)
