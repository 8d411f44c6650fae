"""Call classes: put every tool call into one class, e.g. right or wrong tool."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple, Self

from agentgym.core.needs import NeededCall, align, is_own
from agentgym.core.records import FrozenRecord
from agentgym.core.tools import MALFORMED_CALL, ToolOutcome, ToolSpec, same_arguments
from agentgym.core.trajectory import ModelCall, ToolCall, Trajectory
from agentgym.integrations.offered import Fault, offered_functions, schema_faults
from agentgym.scenarios.tool_tasks.unseen import learn_from

NOTHING = "(nothing)"  # row of calls that match no needed call
NO_CALL = "(no call)"  # column of needed calls that were not made
OWN = "(own)"  # column of calls of the agent's own tools
INVENTED = "(invented)"  # column of calls of tools that do not exist
UNREADABLE = "(malformed)"  # column of calls that could not be parsed


class CallClass(StrEnum):
    """The class of a tool call. If several apply, the first of this list counts.

    A value has the wrong type only if pydantic's lax mode cannot convert it (``"2"`` is
    an integer). A call has a wrong value if it was matched to a needed call of the same
    tool and has other arguments, whether it ran or the tool refused it.
    """

    INVENTED_TOOL = "invented_tool"  # names a tool that the request did not offer
    MALFORMED = "malformed"  # its text could not be parsed as name and object
    MISSING = "missing"  # lacks an argument that the schema requires
    EXTRA = "extra"  # has an argument that the schema does not have
    WRONG_TYPE = "wrong_type"  # a value has another type than the schema requires
    RULE_BROKEN = "rule_broken"  # a rule of the scenario forbids it
    OWN = "own"  # ran, and is of the agent's own tools, e.g. a hand-off
    RIGHT = "right"  # ran, and is a needed call
    WRONG_VALUE = "wrong_value"  # has a value that is forbidden or not needed
    FAULT = "fault"  # met an injected fault
    RAISED = "raised"  # the tool refused it, or the agent ended first
    REPEATED = "repeated"  # ran, and equals an earlier call with the same result
    WRONG_TOOL = "wrong_tool"  # ran instead of a needed call of another tool
    UNNEEDED = "unneeded"  # ran, and matches no needed call
    UNJUDGED = "unjudged"  # ran, in a task without known needed calls


_FAULTS: Mapping[Fault, CallClass] = {
    "missing": CallClass.MISSING,
    "extra": CallClass.EXTRA,
    "type": CallClass.WRONG_TYPE,
}


class JudgedCall(NamedTuple):
    """A tool call, and the class of its outcome, e.g. right or wrong tool."""

    call: ToolCall
    kind: CallClass
    needed: int | None  # index of the needed call that it matches, if any

    def column(self, tools: Collection[str]) -> str:
        """Return the name of this call's column in a :class:`ConfusionMatrix`."""
        if self.kind is CallClass.INVENTED_TOOL:
            return INVENTED
        if self.call.name == MALFORMED_CALL and self.call.name not in tools:
            return UNREADABLE
        return self.call.name if self.call.name in tools else OWN


def judge_calls(
    trajectory: Trajectory,
    needed: Sequence[NeededCall] | None,
    specs: Mapping[str, ToolSpec],
) -> list[JudgedCall]:
    """Return every tool call of an episode with its class, in order."""
    learn_from(specs, trajectory)
    calls = trajectory.get_tool_calls()
    offered = _offered(trajectory)
    succeeded = bool(trajectory.success)
    places = align(needed or (), calls, specs, succeeded=succeeded)
    judged: list[JudgedCall] = []
    for index, (call, place) in enumerate(zip(calls, places, strict=True)):
        need = None if needed is None or place is None else needed[place]
        if is_own(call, specs):
            kind = _class_of_own(call, offered[index].get(call.name, {}))
        else:
            spec = specs.get(call.name)
            kind = _class_of(call, calls[:index], spec, need, succeeded)
        if kind is CallClass.UNNEEDED and needed is None:
            kind = CallClass.UNJUDGED
        judged.append(JudgedCall(call, kind, place))
    return judged


def _class_of(
    call: ToolCall,
    earlier: Sequence[ToolCall],
    spec: ToolSpec | None,
    need: NeededCall | None,
    succeeded: bool,
) -> CallClass:
    """Return the class of a call that does not use one of the agent's own tools."""
    if call.outcome is ToolOutcome.RULE_BROKEN:
        return CallClass.RULE_BROKEN
    if call.outcome is ToolOutcome.MALFORMED:
        return CallClass.MALFORMED
    if call.outcome is ToolOutcome.UNKNOWN_TOOL or spec is None:
        return CallClass.INVENTED_TOOL
    if call.arguments is None:
        return CallClass.MALFORMED
    if call.outcome is ToolOutcome.INVALID_ARGUMENTS:
        return _schema_fault(spec.parameters, call.arguments)
    if call.fault and call.outcome is not ToolOutcome.OK:
        return CallClass.FAULT
    if need is not None:
        if need.accepts(call, spec, succeeded):
            return CallClass.RIGHT
        ran = call.model_copy(update={"outcome": ToolOutcome.OK})
        if call.name == need.tool and not need.accepts(ran, spec, succeeded):
            return CallClass.WRONG_VALUE
    if call.outcome is ToolOutcome.RAISED:
        return CallClass.RAISED
    if any(_tells_the_same(call, other, spec) for other in earlier):
        return CallClass.REPEATED
    return CallClass.UNNEEDED if need is None else CallClass.WRONG_TOOL


def _offered(trajectory: Trajectory) -> list[Mapping[str, Mapping[str, Any]]]:
    """Return, for each tool call, the functions that were offered to the model."""
    found: list[Mapping[str, Mapping[str, Any]]] = []
    offered: Mapping[str, Mapping[str, Any]] = {}
    for step in trajectory.steps:
        if isinstance(step, ModelCall):
            offered = offered_functions(step.tools)
        else:
            found.append(offered)
    return found


def _class_of_own(call: ToolCall, function: Mapping[str, Any]) -> CallClass:
    """Return the class of a call of an offered function that the scenario lacks."""
    if call.arguments is None or call.outcome is ToolOutcome.MALFORMED:
        return CallClass.MALFORMED
    if call.outcome is not ToolOutcome.INVALID_ARGUMENTS:
        return CallClass.OWN
    return _schema_fault(function.get("parameters"), call.arguments)


def _schema_fault(schema: Any, arguments: dict[str, Any]) -> CallClass:
    """Return the class of a call whose arguments were refused.

    If they fit the tool's schema, they were refused for another reason; then they count
    as a wrong value.
    """
    kinds = {fault.kind for fault in schema_faults(schema, arguments)}
    named = (kind for name, kind in _FAULTS.items() if name in kinds)
    return next(named, CallClass.WRONG_VALUE)


def _tells_the_same(call: ToolCall, other: ToolCall, spec: ToolSpec) -> bool:
    return (
        other.name == call.name
        and other.outcome is ToolOutcome.OK
        and other.result == call.result
        and same_arguments(spec, other.arguments or {}, call.arguments or {})
    )


class ConfusionMatrix(FrozenRecord):
    """Counts of tool calls, by the tool that was needed and the tool that was called.

    ``counts`` are by row (needed tool) and column (called tool). The sum of a row is
    the number of needed calls of its tool. The row ``(nothing)`` has calls that match
    no needed call, the column ``(no call)`` needed calls that were not made. All other
    columns together have all calls that were made.
    """

    tools: list[str]
    counts: dict[str, dict[str, int]]

    @classmethod
    def of(
        cls,
        tools: Sequence[str],
        episodes: Iterable[tuple[Sequence[NeededCall], Sequence[JudgedCall]]],
    ) -> Self:
        """Count the tool calls of episodes."""
        cells: Counter[tuple[str, str]] = Counter()
        for needed, judged in episodes:
            answered = {call.needed for call in judged}
            for place, need in enumerate(needed):
                cells[need.tool, NO_CALL] += place not in answered
            for call in judged:
                row = NOTHING if call.needed is None else needed[call.needed].tool
                cells[row, call.column(tools)] += 1
        columns = (*tools, NO_CALL, OWN, INVENTED, UNREADABLE)
        counts = {
            row: {c: cells[row, c] for c in columns if cells[row, c]}
            for row in (*tools, NOTHING)
        }
        return cls(tools=list(tools), counts=counts)
