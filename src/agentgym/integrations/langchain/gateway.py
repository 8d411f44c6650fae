"""The chat model and the tools of LangChain agents in training."""

from typing import Any, ClassVar

from langchain_core.language_models import LanguageModelInput
from langchain_core.tools import StructuredTool
from langchain_openai import ChatOpenAI

from agentgym.core.tools import ToolSpec
from agentgym.integrations.episode import current_episode
from agentgym.integrations.langchain.graphs import running_role
from agentgym.integrations.transport import announce

_SENT_AS_THEY_ARE = ("messages", "tools")


class GatewayChatOpenAI(ChatOpenAI):
    """``ChatOpenAI`` that sends messages and tools to the gateway unchanged.

    Requests contain the name of the calling agent.

    Messages and tools are passed in the argument ``extra_body``, which the openai
    package sends unchecked. In other arguments, the package would compare them with its
    type annotations, which takes several times longer than sending them. The JSON is
    the same.
    """

    def _get_request_payload(
        self,
        input_: LanguageModelInput,
        *,
        stop: list[str] | None = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        if (role := running_role()) is not None:
            announce(role)
        payload = super()._get_request_payload(input_, stop=stop, **kwargs)
        if "messages" not in payload or "response_format" in payload:
            return payload  # another API, or openai needs the tools to parse
        plain = {key: payload[key] for key in _SENT_AS_THEY_ARE if key in payload}
        body = {**plain, **(payload.get("extra_body") or {})}
        rest = {key: payload[key] for key in payload.keys() - plain.keys()}
        return {**rest, "messages": [], "extra_body": body}


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
