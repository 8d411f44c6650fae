"""AgentGym's tools as CrewAI's, in an episode or bound to an environment."""

import sys
from typing import Any

from crewai.tools import BaseTool
from crewai.utilities.string_utils import sanitize_tool_name
from pydantic import PrivateAttr

from agentgym.core.background import in_background
from agentgym.core.tools import Tool, ToolSpec
from agentgym.errors import ToolError, UnsupportedError
from agentgym.integrations.crewai.gateway import failures
from agentgym.integrations.episode import current_episode


def _never(arguments: Any = None, result: Any = None) -> bool:
    """Say that a result may not be used again: what a tool acts on changes."""
    return False


def _fields(spec: ToolSpec) -> dict[str, Any]:
    if (known_as := sanitize_tool_name(spec.name)) != spec.name:
        raise UnsupportedError(
            f"CrewAI tells the model of the tool {spec.name!r} as {known_as!r}, so "
            f"that its calls would go astray. Name it {known_as!r}."
        )
    return {
        "name": spec.name,
        "description": spec.description,
        "args_schema": spec.args_model,
        "cache_function": _never,
        # With a limit, the calls of one message run in their order, not at a time.
        "max_usage_count": sys.maxsize,
    }


class EpisodeTool(BaseTool):
    """A tool that acts on the current episode's environment."""

    @classmethod
    def of(cls, spec: ToolSpec) -> "EpisodeTool":
        """Return the tool; UnsupportedError if CrewAI would rename it."""
        return cls(**_fields(spec))

    def _run(self, **arguments: Any) -> str:
        try:
            return current_episode().use_tool_sync(self.name, arguments)
        except Exception as error:  # CrewAI would tell the model of it, and go on
            failures().append(error)
            raise

    async def _arun(self, **arguments: Any) -> str:
        try:
            return await current_episode().use_tool(self.name, arguments)
        except Exception as error:
            failures().append(error)
            raise


class BoundTool(BaseTool):
    """A tool bound to an environment of its own."""

    _tool: Tool = PrivateAttr()

    @classmethod
    def of(cls, tool: Tool) -> "BoundTool":
        """Return the tool; UnsupportedError if CrewAI would rename it."""
        bound = cls(**_fields(tool.spec))
        bound._tool = tool
        return bound

    def _run(self, **arguments: Any) -> str:
        return in_background(self._arun(**arguments))

    async def _arun(self, **arguments: Any) -> str:
        try:
            return await self._tool(**arguments)
        except ToolError as error:
            return f"Error: {error}"
