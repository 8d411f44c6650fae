"""Convert a scenario's tools to LangChain tools for an episode."""

from typing import Any, ClassVar

from langchain_core.tools import StructuredTool

from agentgym.core.tools import ToolSpec
from agentgym.integrations.episode import current_episode


class EpisodeTool(StructuredTool):
    """A tool that acts on the current episode's environment."""

    is_of_episode: ClassVar[bool] = True


def episode_tool(spec: ToolSpec) -> EpisodeTool:
    """Return a tool with the schema ``spec`` that acts on the current episode."""

    async def call(**arguments: Any) -> str:
        return await current_episode().use_tool(spec.name, arguments)

    def call_sync(**arguments: Any) -> str:
        return current_episode().use_tool_sync(spec.name, arguments)

    return EpisodeTool(
        name=spec.name,
        description=spec.description,
        args_schema=spec.arguments,
        func=call_sync,
        coroutine=call,
    )
