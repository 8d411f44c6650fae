"""LangChain's chat models and tools, in training and after it."""

import copy
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar, Self
from uuid import UUID

import orjson
from langchain_core.callbacks import AsyncCallbackManagerForLLMRun, BaseCallbackHandler
from langchain_core.language_models import LanguageModelInput
from langchain_core.messages import BaseMessage
from langchain_core.outputs import ChatResult
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from langchain_openai import ChatOpenAI
from langgraph.errors import GraphRecursionError
from pydantic import PrivateAttr

from agentgym.core.openai import DEFAULT_AGENT
from agentgym.core.tools import ToolSpec, parse_arguments
from agentgym.integrations.client_adapter import Run, TrainedEndpoint, run_sync
from agentgym.integrations.langchain.graphs import most_steps, role_of, running_role
from agentgym.integrations.redirect import answering
from agentgym.integrations.transport import EpisodePosts, announce, answered, speaker

_SENT_AS_THEY_ARE = ("messages", "tools")
_FOR_OPENAI = ("extra_headers", "extra_query", "response_format", "stream", "timeout")
"""Options that only the openai package can handle, unless they are False or None."""
_DESCRIBED = "_agentgym_described"
_WRITES = "_is_channel_writer"


class GatewayChatOpenAI(ChatOpenAI):
    """``ChatOpenAI`` that sends messages and tools to the gateway unchanged.

    Requests contain the name of the calling agent. Most async requests do without the
    openai package: ``_posts`` sends them.
    """

    _posts: EpisodePosts | None = PrivateAttr(default=None)

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
        if posts is not None:
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


class RoleChatOpenAI(ChatOpenAI):
    """``ChatOpenAI`` whose requests name the calling agent, as in training.

    So the agent's own LoRA adapter answers. ``roles`` are the agents that the server
    has adapters for; None names every agent.
    """

    roles: tuple[str, ...] | None = ()

    @classmethod
    def at(cls, endpoint: TrainedEndpoint, roles: tuple[str, ...] | None) -> Self:
        """Return a model that asks an endpoint; ``roles`` is the attribute."""
        options: dict[str, Any] = {
            "roles": roles,
            "model": endpoint.model,
            "base_url": endpoint.base_url,
            "api_key": lambda: endpoint.api_key,
            "temperature": endpoint.temperature,
            "max_completion_tokens": endpoint.max_tokens,
            "use_responses_api": False,
        }
        if endpoint.transport is not None:
            options |= {
                "http_client": endpoint.sync_http(),
                "http_async_client": endpoint.http(),
                "max_retries": 0,
                "openai_proxy": "",  # else that of the environment, which is refused
                "stream_chunk_timeout": None,
                "stream_usage": True,
            }
        return cls(**options)

    def _get_request_payload(self, input_: Any, **options: Any) -> dict[str, Any]:
        payload: dict[str, Any] = super()._get_request_payload(input_, **options)
        role = speaker() or running_role() or DEFAULT_AGENT
        if self.roles is None or role in self.roles:
            payload["model"] = f"{payload['model']}/{role}"
        return sent_unchecked(payload)

    def _convert_chunk_to_generation_chunk(self, chunk: Any, *args: Any) -> Any:
        # LangChain repairs broken JSON in streams and would run the call. The policy's
        # arguments come whole; quoted, they stay invalid.
        is_of_policy = self.roles is None
        for choice in (chunk.get("choices") or ()) if is_of_policy else ():
            for call in (choice.get("delta") or {}).get("tool_calls") or ():
                written = call["function"]["arguments"]
                if parse_arguments(written) is None:
                    call["function"]["arguments"] = json.dumps(written)
        return super()._convert_chunk_to_generation_chunk(chunk, *args)


def sent_unchecked(payload: dict[str, Any]) -> dict[str, Any]:
    """Return a request with its messages and tools in the argument ``extra_body``.

    The openai package sends them unchecked. In other arguments, the package would
    compare them with its type annotations, which takes several times longer than
    sending them. The JSON is the same.
    """
    if "messages" not in payload or "response_format" in payload:
        return payload  # another API, or openai needs the tools to parse
    plain = {key: payload[key] for key in _SENT_AS_THEY_ARE if key in payload}
    body = {**plain, **(payload.get("extra_body") or {})}
    rest = {key: payload[key] for key in payload.keys() - plain.keys()}
    return {**rest, "messages": [], "extra_body": body}


def limited(graph: Any, max_turns: int) -> Any:
    """Return a graph that ends where an agent calls its model too often."""
    steps = most_steps(graph, max_turns)
    return graph.with_config(recursion_limit=steps, callbacks=[TurnLimit(max_turns)])


class TurnLimit(BaseCallbackHandler):
    """Ends a graph's run in which an agent makes more than ``max_turns`` model calls.

    Calls are counted per agent name, as returned by :func:`role_of`.
    """

    raise_error = True
    run_inline = True

    def __init__(self, max_turns: int) -> None:
        self._max_turns = max_turns
        self._calls: dict[UUID, Counter[str]] = {}

    def on_chain_start(
        self,
        serialized: dict[str, Any],
        inputs: dict[str, Any],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        **kwargs: Any,
    ) -> None:
        """Give a run its parent's call counter; if it has no parent, a new counter."""
        self._calls[run_id] = self._of(parent_run_id)

    def on_chat_model_start(
        self,
        serialized: dict[str, Any],
        messages: list[list[Any]],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Count a model call; raise GraphRecursionError beyond the limit."""
        calls = self._of(parent_run_id)
        role = role_of(metadata or {}) or DEFAULT_AGENT
        calls[role] += 1
        if calls[role] > self._max_turns:
            raise GraphRecursionError(
                f"The agent has called its model {self._max_turns} times without "
                "coming to an end, and was trained with that limit (max_turns)."
            )

    def on_chain_end(self, outputs: Any, *, run_id: UUID, **kwargs: Any) -> None:
        """Delete the call counter of a run that has ended."""
        self._calls.pop(run_id, None)

    def on_chain_error(
        self, error: BaseException, *, run_id: UUID, **kwargs: Any
    ) -> None:
        """Delete the call counter of a run that has failed."""
        self._calls.pop(run_id, None)

    def _of(self, parent: UUID | None) -> Counter[str]:
        nothing: Counter[str] = Counter()
        return nothing if parent is None else self._calls.get(parent, nothing)


def rebound(graph: Any, model: Any) -> Any:
    """Return a copy of a graph in which ``model`` replaces all chat models.

    The copy has the same nodes, tools, memory and callbacks. The original graph and its
    model objects do not change.
    """
    made = copy.copy(graph)
    made.nodes = {name: _node(name, n, model) for name, n in graph.nodes.items()}
    return made


def _node(name: str, node: Any, model: Any) -> Any:
    """Return a copy of a node that uses ``model``, as do its conditional edges."""
    from langgraph.pregel._write import ChannelWrite

    edges = [
        each if isinstance(each, ChannelWrite) else _Answering(each, model)
        for each in node.writers
    ]
    inner = node.bound if name == "__start__" else _Answering(node.bound, model)
    return node.copy({"bound": inner, "writers": edges})


class _Answering(Runnable[Any, Any]):
    """Runs a node's original runnable, with ``model`` instead of its chat models.

    The attribute ``as_written`` is the original runnable.
    """

    def __init__(self, bound: Any, model: Any) -> None:
        self.as_written = bound
        self.name = getattr(bound, "name", None)
        if (writes := getattr(bound, _WRITES, None)) is not None:
            setattr(self, _WRITES, writes)  # the edges shown in a drawing
        self._models = {"langchain": model}.get

    def invoke(
        self, input: Any, config: RunnableConfig | None = None, **options: Any
    ) -> Any:
        with answering(self._models):
            return self.as_written.invoke(input, config, **options)

    async def ainvoke(
        self, input: Any, config: RunnableConfig | None = None, **options: Any
    ) -> Any:
        with answering(self._models):
            return await self.as_written.ainvoke(input, config, **options)
