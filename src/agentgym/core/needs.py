"""NeededCall: a tool call that a task needs. align: match real calls to needed ones."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentgym.core.tools import MALFORMED_CALL, ToolOutcome, ToolSpec, same_arguments
from agentgym.core.trajectory import ToolCall

_EXACT, _SAME_TOOL, _OTHER_TOOL = 10**8, 10**4, 1


@dataclass(frozen=True)
class Needs:
    """The tool calls that tasks need, as far as they are known.

    Attributes:
        by_task: By task id, the needed calls of the task; None if they are unknown.
        tools: The tools of each task, by task id and name; empty if all tasks have the
            same tools.
    """

    by_task: Mapping[str, Sequence["NeededCall"] | None]
    specs: Mapping[str, ToolSpec]
    tools: Mapping[str, Mapping[str, ToolSpec]] = field(default_factory=dict)

    def specs_of(self, task_id: str) -> Mapping[str, ToolSpec]:
        """Return the tools of a task, by name."""
        return self.tools.get(task_id, self.specs)


@dataclass(frozen=True)
class NeededCall:
    """One tool call that a task needs, a part of its shortest solution.

    Attributes:
        others: Further arguments that are equally right.
        by_outcome: Names of arguments that have no single right value, e.g. the new
            text of an edit. In an episode that succeeded, any value is right.
        instead: Other calls that are equally right, maybe of other tools.
    """

    tool: str
    arguments: Mapping[str, Any]
    others: Sequence[Mapping[str, Any]] = ()
    by_outcome: frozenset[str] = frozenset()
    instead: Sequence["NeededCall"] = ()

    @property
    def tools(self) -> set[str]:
        """Names of the tools that may be called, alternatives included."""
        return {self.tool}.union(*(other.tools for other in self.instead))

    def accepts(self, call: ToolCall, spec: ToolSpec | None, succeeded: bool) -> bool:
        """Return whether ``call`` ran without error and matches this needed call.

        ``spec`` gives the tool's default arguments. If the episode ``succeeded``, the
        arguments in ``by_outcome`` may have any values.
        """
        if any(other.accepts(call, spec, succeeded) for other in self.instead):
            return True
        if call.name != self.tool or call.outcome is not ToolOutcome.OK:
            return False
        left_out = self.by_outcome if succeeded else frozenset[str]()
        return any(
            same_arguments(spec, call.arguments or {}, right, without=left_out)
            for right in (self.arguments, *self.others)
        )


def align(
    needed: Sequence[NeededCall],
    made: Sequence[ToolCall],
    specs: Mapping[str, ToolSpec],
    *,
    succeeded: bool,
) -> list[int | None]:
    """Match the calls of an episode to the needed calls of its task, both in order.

    This is a global alignment (Needleman and Wunsch 1970). It matches as many right
    calls as possible. Then it matches as many calls as possible that have the needed
    tool but wrong arguments; then calls of a wrong tool. Among equal alignments, the
    one that matches earlier calls wins. Calls of tools that the agent has and the
    scenario (``specs``) does not have are never matched. In an episode that
    ``succeeded``, arguments without a single right value may have any value.
    """
    judged = [call for call in made if not is_own(call, specs)]
    rows, columns = len(judged), len(needed)

    def gain(i: int, j: int) -> int:
        call, need = judged[i], needed[j]
        if need.accepts(call, specs.get(call.name), succeeded):
            return _EXACT
        return _SAME_TOOL if call.name in need.tools else _OTHER_TOOL

    gains = [[gain(i, j) for j in range(columns)] for i in range(rows)]
    best = [[0] * (columns + 1) for _ in range(rows + 1)]  # gains of remaining calls
    for i in reversed(range(rows)):
        for j in reversed(range(columns)):
            best[i][j] = max(
                gains[i][j] + best[i + 1][j + 1], best[i + 1][j], best[i][j + 1]
            )
    found: list[int | None] = []
    j = 0
    for i in range(rows):
        pairs = False
        while j < columns and not pairs:
            pairs = best[i][j] == gains[i][j] + best[i + 1][j + 1]
            if not pairs and best[i][j] != best[i][j + 1]:
                break  # this call matches none
            j += 1
        found.append(j - 1 if pairs else None)
    places = iter(found)
    return [None if is_own(call, specs) else next(places) for call in made]


def is_own(call: ToolCall, specs: Mapping[str, ToolSpec]) -> bool:
    """Return whether a call is one of the agent's own tools, not in ``specs``."""
    if call.name in specs or call.name == MALFORMED_CALL:
        return False
    return call.outcome is not ToolOutcome.UNKNOWN_TOOL
