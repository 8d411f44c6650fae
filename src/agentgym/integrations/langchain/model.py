"""PolicyChatModel: a LangChain chat model that runs a trained model in this process."""

import asyncio
import itertools
import json
from collections.abc import (
    AsyncIterator,
    Callable,
    Generator,
    Iterator,
    Sequence,
)
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from queue import SimpleQueue
from typing import Any

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
from langchain_core.messages.tool import (
    invalid_tool_call,
    tool_call,
    tool_call_chunk,
)
from langchain_core.outputs import ChatGeneration, ChatGenerationChunk, ChatResult
from langchain_core.runnables import Runnable
from langchain_core.tools import BaseTool
from langchain_core.utils.function_calling import convert_to_openai_tool
from pydantic import PrivateAttr

from agentgym.core.agent import Trained
from agentgym.core.background import in_background
from agentgym.core.openai import unsupported_option, wants_call
from agentgym.core.policy import ChatRequest, Policy
from agentgym.core.policy import ChatResult as PolicyResult
from agentgym.core.tools import parse_arguments
from agentgym.core.trajectory import RequestedCall
from agentgym.errors import UnsupportedError
from agentgym.integrations.langchain.graphs import asking_role
from agentgym.models.forms import Form, form_as_tool, request_in_form
from agentgym.models.stopping import stream_until_stop, until_stop


class PolicyChatModel(BaseChatModel):
    """A LangChain chat model that runs a trained model, the policy, in this process.

    A call may override ``temperature``, ``max_tokens`` and ``seed``, and may have
    ``stop``, ``tool_choice`` and ``response_format``. Other sampling options, e.g.
    ``parallel_tool_calls``, are ignored as in training; ``n`` above 1 raises
    UnsupportedError.

    Attributes:
        temperature: Sampling temperature; 0 always takes the most likely token.
        max_tokens: Maximum number of tokens in a response.
        seed: Seed of the first request; it increases by 1 with each request.
    """

    temperature: float = 0.0
    max_tokens: int = 160
    seed: int = 0

    _policy: Policy = PrivateAttr()
    _requests: Iterator[int] = PrivateAttr(default_factory=itertools.count)

    @classmethod
    def of(cls, trained: Trained) -> "PolicyChatModel":
        """Load a trained agent's weights, and return a model that uses them.

        The weights stay in memory while the model, its copies or their agents exist.
        """
        spec = trained.spec
        policy = trained.load_policy()
        return cls.on(policy, temperature=spec.temperature, max_tokens=spec.max_tokens)

    @classmethod
    def on(cls, policy: Policy, **settings: Any) -> "PolicyChatModel":
        """Return a chat model that uses a loaded policy.

        ``settings`` are the attributes of the chat model, e.g. ``temperature``.
        """
        model = cls(**settings)
        model._policy = policy
        return model

    def close(self) -> None:
        """Close the policy. Later requests to the policy raise EngineError."""
        self._policy.close()

    @property
    def _llm_type(self) -> str:
        return "agentgym-policy"

    def bind_tools(
        self,
        tools: Sequence[dict[str, Any] | type | Callable[..., Any] | BaseTool],
        *,
        tool_choice: str | dict[str, Any] | bool | None = None,
        **kwargs: Any,
    ) -> Runnable[LanguageModelInput, AIMessage]:
        """Return a runnable that calls this model with ``tools``."""
        _refuse_unsupported(**kwargs)
        offered = [convert_to_openai_tool(t) for t in tools]
        return self.bind(tools=offered, tool_choice=tool_choice, **kwargs)

    def _request(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None,
        *,
        temperature: float | None = None,
        max_tokens: int | None = None,
        seed: int | None = None,
        **options: Any,
    ) -> ChatRequest:
        others, form = _formed(options)
        asked = {"tools": others.get("tools", ()), "stop": stop}
        if wants_call(choice := others.get("tool_choice")):
            asked["parallel_tool_calls"] = others.get("parallel_tool_calls")
        asked["tool_choice"] = choice
        _refuse_unsupported(**others)
        converted = convert_to_openai_messages(messages)
        return request_in_form(
            converted if isinstance(converted, list) else [converted],
            asked,
            form,
            agent=asking_role(),
            temperature=self.temperature if temperature is None else temperature,
            max_tokens=self.max_tokens if max_tokens is None else max_tokens,
            seed=self.seed + next(self._requests) if seed is None else seed,
        )

    def _generate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        request = self._request(messages, stop, **kwargs)  # reads this context's role
        return in_background(self._answer(request))

    async def _agenerate(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> ChatResult:
        return await self._answer(self._request(messages, stop, **kwargs))

    async def _answer(self, request: ChatRequest) -> ChatResult:
        result = until_stop(request.stop, await self._policy.chat(request))
        message = _in_form(_message(result), request.form)
        return ChatResult(generations=[ChatGeneration(message=message)])

    def _should_stream(self, **kwargs: Any) -> bool:
        return not _formed(kwargs)[1].name and super()._should_stream(**kwargs)

    def _stream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: CallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> Iterator[ChatGenerationChunk]:
        request = self._request(messages, stop, **kwargs)  # reads this context's role
        chunks = self._chunks(request)
        with closing(_iterate_in_background(chunks)) as items:
            for chunk in items:
                if run_manager is not None:
                    run_manager.on_llm_new_token(chunk.text, chunk=chunk)
                yield chunk

    async def _astream(
        self,
        messages: list[BaseMessage],
        stop: list[str] | None = None,
        run_manager: AsyncCallbackManagerForLLMRun | None = None,
        **kwargs: Any,
    ) -> AsyncIterator[ChatGenerationChunk]:
        request = self._request(messages, stop, **kwargs)
        async for chunk in self._chunks(request):
            if run_manager is not None:
                await run_manager.on_llm_new_token(chunk.text, chunk=chunk)
            yield chunk

    async def _chunks(self, request: ChatRequest) -> AsyncIterator[ChatGenerationChunk]:
        async for piece in stream_until_stop(
            request.stop, self._policy.stream(request)
        ):
            yield _chunk(piece)


def _iterate_in_background[T](items: AsyncIterator[T]) -> Generator[T]:
    """Yield the items of an async iterator in sync code, also inside an event loop.

    The iterator runs in an event loop of another thread, which ends with the iteration.
    Closing the generator cancels the iteration.
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


def _refuse_unsupported(**options: Any) -> None:
    """Raise UnsupportedError for an option that is refused in training too."""
    if (name := unsupported_option(options, in_training=True)) is not None:
        raise UnsupportedError(
            f"{name} = {options[name]!r} is not supported by a policy in this "
            "process, which gives one answer, sampled at its temperature. Leave it out."
        )


def _unreadable(call: RequestedCall) -> str | None:
    """Return a call's arguments, quoted as a JSON string, if they are malformed.

    None if they are a valid JSON object. LangChain repairs broken JSON in streamed
    calls. As a JSON string, the arguments stay invalid.
    """
    readable = parse_arguments(call.arguments) is not None
    return None if readable else json.dumps(call.arguments)


def _message(result: PolicyResult) -> AIMessage:
    calls, invalid = [], []
    for call in result.tool_calls:
        if (text := _unreadable(call)) is not None:
            invalid.append(invalid_tool_call(name=call.name, args=text, id=call.id))
        else:
            arguments = parse_arguments(call.arguments) or {}
            calls.append(tool_call(name=call.name, args=arguments, id=call.id))
    return AIMessage(
        content=result.content or "",
        tool_calls=calls,
        invalid_tool_calls=invalid,
        usage_metadata={
            "input_tokens": len(result.prompt_ids),
            "output_tokens": len(result.response_ids),
            "total_tokens": len(result.prompt_ids) + len(result.response_ids),
        },
        response_metadata={"finish_reason": result.finish_reason},
    )


def _with_schema(options: dict[str, Any]) -> dict[str, Any]:
    """Return options in which a JSON schema replaces a ``response_format`` class."""
    asked = options.get("response_format")
    if not isinstance(asked, type):
        return options
    wording = convert_to_openai_tool(asked)["function"]
    schema = {**wording, "schema": wording.get("parameters", {})}
    wanted = {"type": "json_schema", "json_schema": schema}
    return {**options, "response_format": wanted}


def _formed(options: dict[str, Any]) -> tuple[dict[str, Any], Form]:
    """Replace ``response_format`` by a tool that the model calls to give its answer."""
    try:
        return form_as_tool(_with_schema(options))
    except ValueError as error:
        raise UnsupportedError(str(error)) from error


def _in_form(message: AIMessage, form: str) -> AIMessage:
    """Replace a call of the tool ``form`` by its arguments, as the message's content.

    If there is no such call, return the message unchanged.
    """
    given = next((c["args"] for c in message.tool_calls if c["name"] == form), None)
    if given is None:
        return message
    return AIMessage(
        content=json.dumps(given),
        additional_kwargs={"parsed": given},  # read by langchain-openai's parser
        usage_metadata=message.usage_metadata,
        response_metadata=message.response_metadata,
    )


def _chunk(piece: str | PolicyResult) -> ChatGenerationChunk:
    """Return a stream chunk for a piece of text, or for the whole result at the end.

    The last chunk has the tool calls, and no text.
    """
    if isinstance(piece, str):
        return ChatGenerationChunk(message=AIMessageChunk(content=piece))
    calls = [
        tool_call_chunk(
            name=call.name,
            args=_unreadable(call) or call.arguments,
            id=call.id,
            index=index,
        )
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
