"""A LangChain chat model on a policy in this process: no server, streaming too."""

import asyncio
import itertools
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Generator,
    Iterator,
    Sequence,
)
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from queue import SimpleQueue
from typing import TYPE_CHECKING, Any

from langchain_core.callbacks import (
    AsyncCallbackManagerForLLMRun,
    CallbackManagerForLLMRun,
)
from langchain_core.language_models import BaseChatModel, LanguageModelInput
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    convert_to_openai_messages,
)
from langchain_core.messages.tool import ToolCall as LangChainToolCall
from langchain_core.messages.tool import tool_call_chunk
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import PrivateAttr

from agentgym.core.tools import parse_arguments
from agentgym.engines.base import ChatRequest, Policy
from agentgym.engines.base import ChatResult as PolicyResult

if TYPE_CHECKING:
    from agentgym.core.trained_agent import TrainedAgent


class PolicyChatModel(BaseChatModel):
    """Answers from a policy that runs in this process.

    Attributes:
        temperature: 0 is greedy.
        max_tokens: Of one response.
        seed: Of the first request's random stream; later ones count on.
    """

    temperature: float = 0.0
    max_tokens: int = 160
    seed: int = 0

    _policy: Policy = PrivateAttr()
    _requests: Iterator[int] = PrivateAttr(default_factory=itertools.count)

    @classmethod
    def of(cls, trained: "TrainedAgent") -> "PolicyChatModel":
        """Load a trained agent's weights."""
        from agentgym.engines.local import LocalPolicy

        spec = trained.spec
        model = cls(temperature=spec.temperature, max_tokens=spec.max_tokens)
        model._policy = LocalPolicy.load(trained.model_path)
        return model

    @property
    def _llm_type(self) -> str:
        return "agentgym-policy"

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Offer ``tools``; the policy itself decides whether to call one."""
        return self.bind(tools=[convert_to_openai_tool(t) for t in tools], **kwargs)

    def _request(
        self, messages: list[BaseMessage], tools: list[dict[str, Any]]
    ) -> ChatRequest:
        converted = convert_to_openai_messages(messages)
        return ChatRequest(
            messages=converted if isinstance(converted, list) else [converted],
            tools=tools,
            temperature=self.temperature,
            max_tokens=self.max_tokens,
            seed=self.seed + next(self._requests),
        )

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        *,
        tools: Sequence[dict[str, Any]] = (),
        **kwargs: Any,
    ) -> ChatResult:
        request = self._request(messages, list(tools))
        result = in_background(self._policy.chat(request))
        return ChatResult(generations=[ChatGeneration(message=_message(result))])

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        *,
        tools: Sequence[dict[str, Any]] = (),
        **kwargs: Any,
    ) -> ChatResult:
        result = await self._policy.chat(self._request(messages, list(tools)))
        return ChatResult(generations=[ChatGeneration(message=_message(result))])

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        *,
        tools: Sequence[dict[str, Any]] = (),
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        pieces = self._policy.stream(self._request(messages, list(tools)))
        with closing(_iterate_in_background(pieces)) as items:
            for piece in items:
                chunk = _chunk(piece)
                if run_manager is not None:
                    run_manager.on_llm_new_token(chunk.text, chunk=chunk)
                yield chunk

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        *,
        tools: Sequence[dict[str, Any]] = (),
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        async for piece in self._policy.stream(self._request(messages, list(tools))):
            chunk = _chunk(piece)
            if run_manager is not None:
                await run_manager.on_llm_new_token(chunk.text, chunk=chunk)
            yield chunk


def in_background[T](awaitable: Awaitable[T]) -> T:
    """Wait for an awaitable from sync code, also inside a running event loop."""
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, _await(awaitable)).result()


def _iterate_in_background[T](items: AsyncIterator[T]) -> Generator[T]:
    """Iterate from sync code, also inside a running event loop.

    One loop, on one thread, serves the iterator from its first item to its last, as
    what it waits on belongs to that loop. Closing the generator cancels the rest.
    """
    ready: SimpleQueue[tuple[T, ...]] = SimpleQueue()

    async def fetch() -> None:
        async for item in items:
            ready.put((item,))

    loop = asyncio.new_event_loop()
    task = loop.create_task(fetch())
    with closing(loop), ThreadPoolExecutor(1) as pool:
        fetched = pool.submit(loop.run_until_complete, task)
        fetched.add_done_callback(lambda _: ready.put(()))
        try:
            while found := ready.get():
                yield from found
            fetched.result()
        finally:
            loop.call_soon_threadsafe(task.cancel)


async def _await[T](awaitable: Awaitable[T]) -> T:
    return await awaitable


def _message(result: PolicyResult) -> AIMessage:
    return AIMessage(
        content=result.content or "",
        tool_calls=[
            LangChainToolCall(
                name=call.name,
                args=parse_arguments(call.arguments) or {},
                id=call.id,
                type="tool_call",
            )
            for call in result.tool_calls
        ],
        usage_metadata={
            "input_tokens": len(result.prompt_ids),
            "output_tokens": len(result.response_ids),
            "total_tokens": len(result.prompt_ids) + len(result.response_ids),
        },
        response_metadata={"finish_reason": result.finish_reason},
    )


def _chunk(piece: str | PolicyResult) -> ChatGenerationChunk:
    """Return a piece of text, or at the end the tool calls, as a chunk."""
    if isinstance(piece, str):
        return ChatGenerationChunk(message=AIMessageChunk(content=piece))
    calls = [
        tool_call_chunk(name=call.name, args=call.arguments, id=call.id, index=index)
        for index, call in enumerate(piece.tool_calls)
    ]
    whole = _message(piece)
    return ChatGenerationChunk(
        message=AIMessageChunk(
            content="",
            tool_call_chunks=calls,
            usage_metadata=whole.usage_metadata,
            response_metadata=whole.response_metadata,
            chunk_position="last",
        )
    )
