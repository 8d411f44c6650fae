"""The confusion matrix of tools: which tool was needed, and which was called."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Self

from pydantic import BaseModel, ConfigDict

from agentgym.core.needs import NeededCall
from agentgym.evaluate.calls import CallClass, JudgedCall

NOTHING = "(nothing)"
"""Row of the calls that answer to no needed call."""

NO_CALL = "(no call)"
"""Column of the needed calls that no call answers to."""

INVENTED = "(invented)"
"""Column of the calls of tools that do not exist."""


class ConfusionMatrix(BaseModel):
    """How often a tool was called where another, or the same, was needed.

    Calls are put beside needed calls by :func:`agentgym.core.needs.align`. A row adds
    up to the needed calls of its tool, that of ``(nothing)`` to the calls that no
    need stands behind; all cells but those of ``(no call)`` add up to the calls made.

    Attributes:
        tools: The tools that were offered, in their order.
        counts: Calls by row (the tool needed) and column (the tool called).
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

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
                is_invented = call.kind is CallClass.INVENTED_TOOL
                cells[row, INVENTED if is_invented else call.call.name] += 1
        counts = {
            row: {
                column: count
                for column in (*tools, NO_CALL, INVENTED)
                if (count := cells[row, column])
            }
            for row in (*tools, NOTHING)
        }
        return cls(tools=list(tools), counts=counts)

    @property
    def calls(self) -> int:
        """Calls made."""
        return sum(
            count
            for row in self.counts.values()
            for column, count in row.items()
            if column != NO_CALL
        )

    @property
    def needed(self) -> int:
        """Needed calls."""
        rows = (self.counts.get(tool, {}) for tool in self.tools)
        return sum(sum(row.values()) for row in rows)
