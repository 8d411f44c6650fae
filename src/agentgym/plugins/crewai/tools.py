"""Convert tools to CrewAI tools, for episodes or for use outside of training."""

import sys
from collections.abc import Sequence
from typing import Any, ClassVar

from crewai.tools import BaseTool
from crewai.tools.tool_failure import ToolFailure
from crewai.utilities.string_utils import sanitize_tool_name
from pydantic import PrivateAttr

from agentgym.core.background import call_in_thread, in_background
from agentgym.core.tools import Tool, ToolSpec
from agentgym.errors import ToolError, UnsupportedError
from agentgym.integrations.episode import current_episode
from agentgym.integrations.on_client.in_place import live_tool
from agentgym.scenarios.schemas import spec_of_model


def _never(arguments: Any = None, result: Any = None) -> bool:
    """Return False: CrewAI must not cache results, because they may change."""
    return False


def _fields(spec: ToolSpec) -> dict[str, Any]:
    return {
        "name": spec.name,
        "description": spec.description,
        "args_schema": spec.args_model,
        "cache_function": _never,
        # With a limit, the calls of one message run in order, not in parallel.
        "max_usage_count": sys.maxsize,
    }


def require_apart(specs: Sequence[ToolSpec]) -> None:
    """Raise UnsupportedError if two tool names are equal in lower case.

    CrewAI sends all names in lower case.
    """
    seen: dict[str, str] = {}
    for spec in specs:
        other = seen.setdefault(sanitize_tool_name(spec.name), spec.name)
        if other != spec.name:
            raise UnsupportedError(
                f"The tools {other!r} and {spec.name!r} are one to CrewAI, which "
                "writes names in small letters. Rename one."
            )


class CrewEpisodeTool(BaseTool):
    """A tool that acts on the current episode's environment."""

    is_of_episode: ClassVar[bool] = True

    @classmethod
    def of(cls, spec: ToolSpec) -> "CrewEpisodeTool":
        """Return a tool with the schema ``spec``.

        GatewayLLM sends its name unchanged; CrewAI's other models use lower case.
        """
        return cls(**_fields(spec))

    def _run(self, **arguments: Any) -> str:
        return current_episode().use_tool_sync(self.name, arguments)

    async def _arun(self, **arguments: Any) -> str:
        return await current_episode().use_tool(self.name, arguments)


def spec_of(tool: BaseTool) -> ToolSpec:
    """Return a tool's schema for a model."""
    name = sanitize_tool_name(tool.name)
    return spec_of_model(name, tool.description, tool.args_schema)


def callable_tool(tool: BaseTool) -> Tool:
    """Convert a CrewAI tool to an AgentGym tool that runs it."""

    async def run(arguments: dict[str, Any]) -> str:
        try:
            found = await call_in_thread(_contained, tool, arguments)
        except Exception as error:
            raise ToolError(str(error)) from error  # CrewAI shows it to the model
        if isinstance(found, SystemExit):
            raise found
        text = tool.format_output_for_agent(found)
        if isinstance(found, ToolFailure):
            raise ToolError(text)
        return text

    function = getattr(tool, "func", None) or type(tool)._run
    returned = getattr(function, "__annotations__", {}).get("return")
    return live_tool(spec_of(tool), run, returned)


def _contained(tool: BaseTool, arguments: dict[str, Any]) -> Any:
    try:
        return tool.run(**arguments)
    except SystemExit as end:  # a thread cannot pass it on
        return end


class BoundTool(BaseTool):
    """A CrewAI tool that runs an AgentGym tool, for an exported agent."""

    _tool: Tool = PrivateAttr()

    @classmethod
    def of(cls, tool: Tool) -> "BoundTool":
        """Convert an AgentGym tool to a CrewAI tool."""
        if (known_as := sanitize_tool_name(tool.spec.name)) != tool.spec.name:
            raise UnsupportedError(
                f"CrewAI offers the tool {tool.spec.name!r} to the model as "
                f"{known_as!r}, and it was trained with its own name. Name it "
                f"{known_as!r}."
            )
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
