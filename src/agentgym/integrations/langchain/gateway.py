"""The chat model and the tools of LangChain agents in training."""

from collections.abc import Sequence
from typing import Any, ClassVar, Self

import orjson
from langchain_core.callbacks import AsyncCallbackManagerForLLMRun
from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatResult
from langchain_core.tools import BaseTool, StructuredTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langchain_openai import ChatOpenAI
from pydantic import PrivateAttr

from agentgym.core.tools import ToolSpec
from agentgym.integrations.langchain.graphs import running_role
from agentgym.integrations.langchain.model import sent_unchecked
from agentgym.integrations.on_client.adapter import Run, run_sync
from agentgym.integrations.transport import EpisodePosts, announce, answered

_FOR_OPENAI = ("extra_headers", "extra_query", "response_format", "stream", "timeout")
"""Options that only the openai package can handle, unless they are False or None."""
_DESCRIBED = "_agentgym_described"


class GatewayChatOpenAI(ChatOpenAI):
    """``ChatOpenAI`` that sends messages and tools to the gateway unchanged.

    Requests contain the name of the calling agent. Most async requests do without the
    openai package: ``_posts`` sends them.
    """

    _posts: EpisodePosts | None = PrivateAttr(default=None)

    @classmethod
    def posting(cls, posts: EpisodePosts | None, **settings: Any) -> Self:
        """Return a model whose plain requests are sent by ``posts``, if not None."""
        model = cls(**settings)
        model._posts = posts
        return model

    def bind_tools(self, tools: Sequence[Any], **kwargs: Any) -> Any:
        """Return a runnable that calls this model with ``tools``."""
        if kwargs.get("strict") is None:
            tools = [_described(tool) for tool in tools]
        return super().bind_tools(tools, **kwargs)

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        generate = super()._agenerate
        posts = self._posts
        body = None
        if posts is not None and posts.is_usable():
            body = _json(self._get_request_payload(messages, stop=stop, **kwargs))
        if posts is None or body is None:
            return await generate(messages, stop, run_manager, **kwargs)
        answer = await posts.post("/chat/completions", body)
        if answer.is_success:
            return self._create_chat_result(orjson.loads(answer.body))
        with answered(answer):  # so that errors are those of the openai package
            return await generate(messages, stop, run_manager, **kwargs)

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
        return sent_unchecked(payload)


def _json(payload: dict[str, Any]) -> bytes | None:
    """Return the body of a request; None if only the openai package can write it."""
    given = {**payload, **payload.get("extra_body", {})}
    given.pop("extra_body", None)
    if "messages" not in given or any(given.pop(name, None) for name in _FOR_OPENAI):
        return None
    try:
        return orjson.dumps(given)
    except TypeError:
        return None


def _described(tool: Any) -> Any:
    """Return a tool as OpenAI describes it; a tool that did not change, once."""
    if not isinstance(tool, BaseTool):
        return tool
    state = tool.name, tool.description, tool.args_schema
    known = vars(tool).get(_DESCRIBED)
    if known is None or known[0] != state:
        known = vars(tool)[_DESCRIBED] = state, convert_to_openai_tool(tool)
    return known[1]


class LangChainSpecTool(StructuredTool):
    """A tool that is known by its schema; in an episode, nothing replaces it."""

    is_of_episode: ClassVar[bool] = True


def spec_tool(spec: ToolSpec, run: Run) -> LangChainSpecTool:
    """Return a tool with the schema ``spec`` that calls ``run``."""

    async def call(**arguments: Any) -> str:
        return await run(arguments, None)

    def call_sync(**arguments: Any) -> str:
        return run_sync(run(arguments, None))

    return LangChainSpecTool(
        name=spec.name,
        description=spec.description,
        args_schema=spec.arguments,
        func=call_sync,
        coroutine=call,
    )
