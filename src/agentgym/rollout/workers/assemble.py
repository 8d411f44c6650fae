"""Joins what the gateway saw with what the tools saw into one list of steps."""

from collections.abc import Mapping, Sequence
from typing import Any

from agentgym.core.tools import (
    ToolOutcome,
    ToolSpec,
    check_call,
    normalized,
    parse_arguments,
)
from agentgym.core.trajectory import ModelCall, RequestedCall, Step, ToolCall
from agentgym.integrations.offered import check_offered, offered_functions

NOT_RUN = "(the agent ended before this call ran)"
OWN = "(a tool of the agent's own)"


def assemble_steps(
    model_calls: Sequence[ModelCall],
    tool_calls: Sequence[ToolCall],
    specs: dict[str, ToolSpec],
) -> list[Step]:
    """Interleave model calls with the outcomes of the tool calls they asked for.

    Reliability is judged in two layers, the same for every framework: what the
    model wrote (that call was offered the tool, the arguments parse and validate
    against the original schema) and what became of the call (it ran, was refused, broke
    a rule). Calls that a framework rejected itself are known only from the first, and
    so are those of tools that the agent brought along, as hand-offs to others of a
    team; their schema is the one that was offered.

    Args:
        model_calls: From the gateway, in order.
        tool_calls: From around the callables, in the order they finished.
        specs: The scenario's tools by name, with their original schemas.
    """
    pending = list(tool_calls)
    steps: list[Step] = []
    for model_call in model_calls:
        steps.append(model_call)
        offered = offered_functions(model_call.tools)
        steps.extend(
            _outcome(call, pending, specs, offered) for call in model_call.tool_calls
        )
    steps.extend(pending)  # made by the agent's own code, not asked for by the model
    return steps


def _outcome(
    requested: RequestedCall,
    pending: list[ToolCall],
    specs: Mapping[str, ToolSpec],
    offered: Mapping[str, Mapping[str, Any]],
) -> ToolCall:
    arguments = parse_arguments(requested.arguments)
    spec = specs.get(requested.name)
    is_own = spec is None and requested.name in offered
    if is_own:
        outcome, reason = check_offered(offered[requested.name], requested.arguments)
    else:
        known = {} if spec is None or spec.name not in offered else {spec.name: spec}
        outcome, reason = check_call(known, requested.name, requested.arguments)
    valid = outcome is ToolOutcome.OK
    unnamed = [c for c in pending if c.id is None and c.name == requested.name]
    ran = next((c for c in pending if c.id == requested.id), None) or next(
        (c for c in unnamed if _same(spec, c.arguments, arguments)),
        unnamed[0] if unnamed and valid else None,
    )
    if ran is not None:
        pending.remove(ran)
        became = ran.outcome
        if outcome is ToolOutcome.UNKNOWN_TOOL:  # somebody ran it all the same
            became = outcome
        return ran.model_copy(update={"id": requested.id, "outcome": became})
    if valid and not is_own:
        outcome, reason = ToolOutcome.RAISED, NOT_RUN
    return ToolCall(
        id=requested.id,
        name=requested.name,
        arguments=arguments,
        outcome=outcome,
        result=f"Error: {reason}" if reason else OWN,
    )


def _same(
    spec: ToolSpec | None,
    ran: dict[str, Any] | None,
    written: dict[str, Any] | None,
) -> bool:
    """Return whether arguments are the same to the tool; malformed ones are alike."""
    if ran is None or written is None:
        return ran is written
    return normalized(spec, ran) == normalized(spec, written)
