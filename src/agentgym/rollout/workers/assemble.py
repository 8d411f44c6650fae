"""Joins what the gateway saw with what the tools saw into one list of steps."""

from collections.abc import Sequence
from typing import Any

from agentgym.core.tools import (
    ToolOutcome,
    ToolSpec,
    check_call,
    normalized,
    parse_arguments,
)
from agentgym.core.trajectory import ModelCall, RequestedCall, Step, ToolCall

NOT_RUN = "(the agent ended before this call ran)"
OWN = "(a tool of the agent's own)"


def assemble_steps(
    model_calls: Sequence[ModelCall],
    tool_calls: Sequence[ToolCall],
    specs: dict[str, ToolSpec],
) -> list[Step]:
    """Interleave model calls with the outcomes of the tool calls they asked for.

    Reliability is judged in two layers, the same for every framework: what the
    model wrote (the tool was offered, the arguments parse and validate against the
    original schema) and what became of the call (it ran, was refused, broke a
    rule). Calls that a framework rejected itself are known only from the first, and so
    are those of tools that the agent brought along, as hand-offs to others of a team.

    Args:
        model_calls: From the gateway, in order.
        tool_calls: From around the callables, in the order they finished.
        specs: The offered tools by name, with their original schemas.
    """
    pending = list(tool_calls)
    steps: list[Step] = []
    for model_call in model_calls:
        steps.append(model_call)
        offered = {tool.get("function", {}).get("name") for tool in model_call.tools}
        own = offered - specs.keys()
        steps.extend(
            _own_call(call) if call.name in own else _outcome(call, pending, specs)
            for call in model_call.tool_calls
        )
    steps.extend(pending)  # made by the agent's own code, not asked for by the model
    return steps


def _outcome(
    requested: RequestedCall, pending: list[ToolCall], specs: dict[str, ToolSpec]
) -> ToolCall:
    outcome, reason = check_call(specs, requested.name, requested.arguments)
    arguments = parse_arguments(requested.arguments)
    spec = specs.get(requested.name)
    valid = outcome is ToolOutcome.OK
    unnamed = [c for c in pending if c.id is None and c.name == requested.name]
    ran = next((c for c in pending if c.id == requested.id), None) or next(
        (c for c in unnamed if _same(spec, c.arguments, arguments)),
        unnamed[0] if unnamed and valid else None,
    )
    if ran is not None:
        pending.remove(ran)
        return ran.model_copy(update={"id": requested.id})
    if valid:
        outcome, reason = ToolOutcome.RAISED, NOT_RUN
    return ToolCall(
        id=requested.id,
        name=requested.name,
        arguments=arguments,
        outcome=outcome,
        result=f"Error: {reason}",
    )


def _own_call(requested: RequestedCall) -> ToolCall:
    arguments = parse_arguments(requested.arguments)
    return ToolCall(
        id=requested.id,
        name=requested.name,
        arguments=arguments,
        outcome=ToolOutcome.MALFORMED if arguments is None else ToolOutcome.OK,
        result=OWN,
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
