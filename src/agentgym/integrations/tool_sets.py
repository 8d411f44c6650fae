"""ToolSets: agents for tasks that have different tools, each built once."""

import json
from collections import OrderedDict
from collections.abc import Callable, Sequence

from agentgym.core.tools import ToolSpec
from agentgym.integrations.episode import current_episode

_MOST_KEPT = 64


class ToolSets[T]:
    """Caches an adapter's objects made from tools, one for each set of tools.

    Most scenarios offer every task the same tools: they pay a comparison an episode.
    Where tools differ from task to task, the most recent sets are kept.

    Args:
        tools: Those that the scenario offers every task; maybe none.
        build: Makes an agent, or part of one, that offers some tools. It holds nothing
            that must be closed.
        differs: Whether other tools make another agent; an agent that brings its own
            is the same for all.

    Attributes:
        usual: The object built from ``tools``.
    """

    def __init__(
        self,
        tools: Sequence[ToolSpec],
        build: Callable[[list[ToolSpec]], T],
        *,
        differs: bool = True,
    ) -> None:
        self._tools = list(tools)
        self._build = build
        self._differs = differs
        self._others: OrderedDict[str, T] = OrderedDict()
        self.usual = build(self._tools)

    def of_episode(self) -> T:
        """Return the object with the tools of the current episode's task."""
        tools = current_episode().task_tools
        if not self._differs or tools == self._tools:
            return self.usual
        key = json.dumps([tool.to_openai() for tool in tools])
        if key not in self._others:
            self._others[key] = self._build(tools)
            if len(self._others) > _MOST_KEPT:
                self._others.popitem(last=False)
        self._others.move_to_end(key)
        return self._others[key]
