"""Convert tools to CrewAI tools, and CrewAI's tools to AgentGym tools."""

import sys
from collections.abc import Sequence
from typing import Any, ClassVar, Self

from crewai.tools import BaseTool
from crewai.tools.tool_failure import ToolFailure
from crewai.utilities.string_utils import sanitize_tool_name
from pydantic import PrivateAttr

from agentgym.core.background import call_in_thread
from agentgym.core.tools import Tool, ToolSpec
from agentgym.errors import ToolError, UnsupportedError
from agentgym.integrations.on_client.adapter import Run, run_sync
from agentgym.integrations.on_client.in_place import live_tool
from agentgym.scenarios.schemas import spec_of_model


def _never(arguments: Any = None, result: Any = None) -> bool:
    """Return False: CrewAI must not cache results, because they may change."""
    return False


def require_apart(names: Sequence[str]) -> None:
    """Raise UnsupportedError if two tool names are equal in lower case.

    CrewAI sends all names in lower case.
    """
    seen: dict[str, str] = {}
    for name in names:
        other = seen.setdefault(sanitize_tool_name(name), name)
        if other != name:
            raise UnsupportedError(
                f"The tools {other!r} and {name!r} are one to CrewAI, which "
                "writes names in small letters. Rename one."
            )


class CrewSpecTool(BaseTool):
    """A tool that is known by its schema, whose arguments AgentGym checks.

    GatewayLLM sends its name unchanged; CrewAI's other models use lower case.
    """

    is_of_episode: ClassVar[bool] = True
    _call: Run = PrivateAttr()

    @classmethod
    def of(cls, spec: ToolSpec, run: Run) -> Self:
        """Return a tool with the schema ``spec`` that calls ``run``."""
        made = cls(
            name=spec.name,
            description=spec.description,
            args_schema=spec.args_model,
            cache_function=_never,
            # With a limit, the calls of one message run in order, not in parallel.
            max_usage_count=sys.maxsize,
        )
        made._call = run
        return made

    def _run(self, **arguments: Any) -> str:
        return run_sync(self._arun(**arguments))

    async def _arun(self, **arguments: Any) -> str:
        return await self._call(arguments, None)


def tools_of(tool: BaseTool) -> list[Tool]:
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
    name = sanitize_tool_name(tool.name)
    spec = spec_of_model(name, tool.description, tool.args_schema)
    return [live_tool(spec, run, returned)]


def _contained(tool: BaseTool, arguments: dict[str, Any]) -> Any:
    try:
        return tool.run(**arguments)
    except SystemExit as end:  # a thread cannot pass it on
        return end
