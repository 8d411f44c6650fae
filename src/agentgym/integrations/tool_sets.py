"""ToolSets: build one agent for each set of tools, if tasks have different tools."""

import json
from collections import OrderedDict
from collections.abc import Callable, Sequence

from agentgym.core.tools import ToolSpec
from agentgym.integrations.episode import current_episode

_MOST_KEPT = 64


class ToolSets[T]:
    """Caches agents, or parts of agents, by the tools with which they were built.

    If all tasks have the same tools, as in most scenarios, only one object is built.
    Otherwise the objects for the most recently used sets are kept; the others are
    dropped without being closed. ``differs`` is false for an agent with its own tools;
    then, too, only one object is built.

    Attributes:
        usual: The object that was built with ``tools``, the tools of every task.
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
        """Return the object for the tools of the current episode's task."""
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
