"""Call classes: judge every tool call, right or wrong, as exactly one class."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from pydantic import BaseModel, ValidationError

from agentgym.core.needs import NeededCall, align, is_own
from agentgym.core.tools import MALFORMED_CALL, ToolOutcome, ToolSpec, normalized
from agentgym.core.trajectory import ModelCall, ToolCall, Trajectory
from agentgym.integrations.offered import Fault, offered_functions, schema_faults

NOTHING = "(nothing)"  # row of the calls that answer to no needed call
NO_CALL = "(no call)"  # column of the needed calls that no call answers to
OWN = "(own)"  # column of the calls of tools that the agent brought along
INVENTED = "(invented)"  # column of the calls of tools that do not exist
UNREADABLE = "(malformed)"  # column of the calls whose text could not be read


class CallClass(StrEnum):
    """The class of a tool call: the first one that fits, from the top.

    A value is of another type than the schema asks for only if pydantic's lax mode
    does not convert it (``"2"`` is an integer). A call that ran or was refused by the
    tool has the wrong value if it matches a needed call of the same tool.
    """

    INVENTED_TOOL = "invented_tool"  # names no tool that the call was offered
    MALFORMED = "malformed"  # its text could not be read as a name and an object
    MISSING = "missing"  # an argument that the schema requires is missing
    EXTRA = "extra"  # none is missing, and there is one that the schema knows not
    WRONG_TYPE = "wrong_type"  # a value is not of the type that the schema asks for
    RULE_BROKEN = "rule_broken"  # a rule of the scenario forbids it
    OWN = "own"  # ran, and is of a tool that the agent brought along, e.g. a hand-off
    RIGHT = "right"  # ran, and is a call that the task needs
    WRONG_VALUE = "wrong_value"  # has a value outside the schema, or not the needed one
    RAISED = "raised"  # the tool refused it, or the agent ended before it ran
    REPEATED = "repeated"  # ran, like an earlier one with the same result
    WRONG_TOOL = "wrong_tool"  # ran instead of a needed call of another tool
    UNNEEDED = "unneeded"  # ran, and answers to no needed call
    UNJUDGED = "unjudged"  # ran, in a task whose needed calls are not known


_FAULTS: Mapping[Fault, CallClass] = MappingProxyType(
    {
        "missing": CallClass.MISSING,
        "extra": CallClass.EXTRA,
        "type": CallClass.WRONG_TYPE,
    }
)


class JudgedCall(NamedTuple):
    """A tool call and its class."""

    call: ToolCall
    kind: CallClass
    needed: int | None  # place in the plan of the call that it answers to, if any

    def column(self, tools: Collection[str]) -> str:
        """Return where the call stands in a confusion matrix of ``tools``."""
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
    """Put every tool call of an episode into one class.

    Args:
        trajectory: A finished episode.
        needed: The calls that its task needs; None if that is not known.
        specs: The scenario's tools, by name, with their original schemas.

    Returns:
        One judgement per tool call, in order.
    """
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
    """Return the first class that fits; ``need`` is the needed call that it matches."""
    if call.outcome is ToolOutcome.RULE_BROKEN:
        return CallClass.RULE_BROKEN
    if call.outcome is ToolOutcome.MALFORMED:
        return CallClass.MALFORMED
    if call.outcome is ToolOutcome.UNKNOWN_TOOL or spec is None:
        return CallClass.INVENTED_TOOL
    if call.arguments is None:
        return CallClass.MALFORMED
    if call.outcome is ToolOutcome.INVALID_ARGUMENTS:
        return _argument_fault(spec, call.arguments)
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
    """Return for each tool call the functions that its model call was offered."""
    found: list[Mapping[str, Mapping[str, Any]]] = []
    offered: Mapping[str, Mapping[str, Any]] = {}
    for step in trajectory.steps:
        if isinstance(step, ModelCall):
            offered = offered_functions(step.tools)
        else:
            found.append(offered)
    return found


def _class_of_own(call: ToolCall, function: Mapping[str, Any]) -> CallClass:
    """Return the class of a call that no scenario knows, by the offered schema."""
    if call.arguments is None or call.outcome is ToolOutcome.MALFORMED:
        return CallClass.MALFORMED
    if call.outcome is not ToolOutcome.INVALID_ARGUMENTS:
        return CallClass.OWN
    faults = schema_faults(function.get("parameters"), call.arguments)
    kinds = {fault.kind for fault in faults}
    named = (k for name, k in _FAULTS.items() if name in kinds)
    return next(named, CallClass.WRONG_VALUE)


def _argument_fault(spec: ToolSpec, arguments: dict[str, Any]) -> CallClass:
    """Return the fault of arguments that were refused, by the tool's schema.

    If the schema finds nothing, the refusal was the framework's own, of a value.
    """
    try:
        spec.validate(arguments)
    except ValidationError as error:
        faults = {problem["type"] for problem in error.errors()}
    else:
        return CallClass.WRONG_VALUE
    if "value_error" in faults:  # maybe a tool that is known by a JSON schema alone
        kinds = {fault.kind for fault in schema_faults(spec.parameters, arguments)}
        named = (kind for name, kind in _FAULTS.items() if name in kinds)
        return next(named, CallClass.WRONG_VALUE)
    if "missing" in faults:
        return CallClass.MISSING
    if "extra_forbidden" in faults:
        return CallClass.EXTRA
    # pydantic names faults of a type int_type, int_parsing, int_from_float and the
    # like, those of a value literal_error, greater_than and so on.
    if any(f.endswith(("_type", "_parsing")) or "_from_" in f for f in faults):
        return CallClass.WRONG_TYPE
    return CallClass.WRONG_VALUE


def _tells_the_same(call: ToolCall, other: ToolCall, spec: ToolSpec) -> bool:
    return (
        other.name == call.name
        and other.outcome is ToolOutcome.OK
        and other.result == call.result
        and normalized(spec, other.arguments or {})
        == normalized(spec, call.arguments or {})
    )


class ConfusionMatrix(BaseModel, frozen=True, extra="forbid"):
    """How often a tool was called where another, or the same, was needed.

    A row adds up to the needed calls of its tool, that of ``(nothing)`` to the calls
    that no need stands behind; all cells but ``(no call)`` add up to the calls made.

    Attributes:
        tools: The tools that were offered, in their order.
        counts: Calls by row (the tool needed) and column (the tool called).
    """

    tools: list[str]
    counts: dict[str, dict[str, int]]

    @classmethod
    def of(
        cls,
        tools: Sequence[str],
        episodes: Iterable[tuple[Sequence[NeededCall], Sequence[JudgedCall]]],
    ) -> Self:
        """Count the calls of episodes whose needed calls are known."""
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
