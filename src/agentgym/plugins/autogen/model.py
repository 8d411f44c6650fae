"""PolicyClient: an AutoGen model client that runs a trained model in this process."""

import asyncio
import itertools
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from typing import Any, Literal, Self

from autogen_core import CancellationToken, FunctionCall
from autogen_core.models import (
    ChatCompletionClient,
    CreateResult,
    FunctionExecutionResultMessage,
    LLMMessage,
    ModelCapabilities,
    ModelInfo,
    RequestUsage,
    SystemMessage,
    UserMessage,
)
from autogen_core.tools import Tool, ToolSchema
from openai.lib._parsing import type_to_response_format_param
from pydantic import BaseModel

from agentgym.core.agent import Trained
from agentgym.core.openai import unsupported_option
from agentgym.core.policy import ChatRequest, ChatResult, Policy
from agentgym.errors import UnsupportedError
from agentgym.models.forms import answer_in_form, form_as_tool, request_in_form
from agentgym.models.stopping import stream_until_stop, until_stop
from agentgym.plugins.autogen.clients import POLICY_INFO

_OWN_OPTIONS = frozenset({"temperature", "max_tokens", "seed"})


class PolicyClient(ChatCompletionClient):
    """An AutoGen model client that runs a trained model, the policy, in this process.

    A call's ``extra_create_args`` may have ``temperature``, ``max_tokens``, ``seed``
    and ``stop``; other sampling options are ignored, as in training. A temperature of 0
    always takes the most likely token. The constructor's ``seed`` is the seed of the
    first request; each further request uses the next number.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        temperature: float = 0.0,
        max_tokens: int = 160,
        seed: int = 0,
    ) -> None:
        self._policy = policy
        self._options: dict[str, Any] = {
            "temperature": temperature,
            "max_tokens": max_tokens,
        }
        self._seeds = itertools.count(seed)
        self._usage = RequestUsage(prompt_tokens=0, completion_tokens=0)

    @classmethod
    def of(cls, trained: Trained) -> Self:
        """Load a trained agent's weights, and return a client that uses them.

        The weights stay in memory as long as the client.
        """
        spec = trained.spec
        return cls(
            trained.load_policy(),
            temperature=spec.temperature,
            max_tokens=spec.max_tokens,
        )

    async def create(
        self,
        messages: Sequence[LLMMessage],
        *,
        tools: Sequence[Tool | ToolSchema] = (),
        tool_choice: Tool | Literal["auto", "required", "none"] = "auto",
        json_output: bool | type[BaseModel] | None = None,
        extra_create_args: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
    ) -> CreateResult:
        """Return the policy's answer: a text, or tool calls."""
        _refuse_unsupported(extra_create_args)
        options = {"seed": next(self._seeds), **(extra_create_args or {})}
        request = self._request(messages, tools, tool_choice, options, json_output)
        answer = asyncio.ensure_future(self._policy.chat(request))
        if cancellation_token is not None:
            cancellation_token.link_future(answer)
        return self._result(await answer, request)

    async def create_stream(
        self,
        messages: Sequence[LLMMessage],
        *,
        tools: Sequence[Tool | ToolSchema] = (),
        tool_choice: Tool | Literal["auto", "required", "none"] = "auto",
        json_output: bool | type[BaseModel] | None = None,
        extra_create_args: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
    ) -> AsyncGenerator[str | CreateResult]:
        """Yield the text of an answer as it is sampled, then the whole answer."""
        _refuse_unsupported(extra_create_args)
        options = {"seed": next(self._seeds), **(extra_create_args or {})}
        request = self._request(messages, tools, tool_choice, options, json_output)
        pieces = stream_until_stop(request.stop, self._policy.stream(request))
        while True:
            piece = asyncio.ensure_future(anext(pieces, None))
            if cancellation_token is not None:
                cancellation_token.link_future(piece)
            found = await piece
            if found is None:
                return
            yield found if isinstance(found, str) else self._result(found, request)

    async def close(self) -> None:
        """Close the policy. Later requests to the policy raise EngineError."""
        self._policy.close()

    def actual_usage(self) -> RequestUsage:
        """Return the number of prompt and response tokens of all answers so far."""
        return self._usage

    def total_usage(self) -> RequestUsage:
        """Return the same numbers as :meth:`actual_usage`: no answers are cached."""
        return self._usage

    def count_tokens(
        self,
        messages: Sequence[LLMMessage],
        *,
        tools: Sequence[Tool | ToolSchema] = (),
    ) -> int:
        """Return the number of tokens in the prompt for these messages and tools."""
        return self._policy.room(self._request(messages, tools, "auto", {}))[0]

    def remaining_tokens(
        self,
        messages: Sequence[LLMMessage],
        *,
        tools: Sequence[Tool | ToolSchema] = (),
    ) -> int:
        """Return how many more tokens fit into the model's context after the prompt."""
        return self._policy.room(self._request(messages, tools, "auto", {}))[1]

    @property
    def capabilities(self) -> ModelCapabilities:
        """The policy's abilities, in the older of AutoGen's two types."""
        return ModelCapabilities(vision=False, function_calling=True, json_output=True)

    @property
    def model_info(self) -> ModelInfo:
        """The policy's abilities, e.g. whether it can call tools."""
        return POLICY_INFO

    def _request(
        self,
        messages: Sequence[LLMMessage],
        tools: Sequence[Tool | ToolSchema],
        choice: Tool | str,
        options: Mapping[str, Any],
        json_output: bool | type[BaseModel] | None = None,
    ) -> ChatRequest:
        asked = {
            "tools": [_offered(tool) for tool in tools],
            "tool_choice": choice if isinstance(choice, str) else choice.name,
            "response_format": _form_of(json_output),
            "stop": options.get("stop"),
        }
        own = {name: options[name] for name in _OWN_OPTIONS & options.keys()}
        return request_in_form(
            [said for message in messages for said in _openai(message)],
            *form_as_tool(asked),
            **{**self._options, **own},
        )

    def _result(self, result: ChatResult, asked: ChatRequest) -> CreateResult:
        result = until_stop(asked.stop, result)
        usage = RequestUsage(len(result.prompt_ids), len(result.response_ids))
        self._usage = RequestUsage(
            self._usage.prompt_tokens + usage.prompt_tokens,
            self._usage.completion_tokens + usage.completion_tokens,
        )
        if given := answer_in_form(result.tool_calls, asked.form):
            return CreateResult(
                finish_reason="stop", content=given, usage=usage, cached=False
            )
        # Without tools, the caller expects text, e.g. when it chooses the next speaker.
        if not result.tool_calls or not asked.tools:
            ended: Any = "length" if result.finish_reason == "length" else "stop"
            return CreateResult(
                finish_reason=ended,
                content=result.content or "",
                usage=usage,
                cached=False,
            )
        return CreateResult(
            finish_reason="function_calls",
            content=[
                FunctionCall(id=call.id, name=call.name, arguments=call.arguments)
                for call in result.tool_calls
            ],
            usage=usage,
            cached=False,
            thought=result.content or None,
        )


def _form_of(json_output: bool | type[BaseModel] | None) -> dict[str, Any] | None:
    """Convert ``json_output`` to a ``response_format``; return None for plain text."""
    if isinstance(json_output, type):
        made: Any = type_to_response_format_param(json_output)
        return dict(made)
    return {"type": "json_object"} if json_output else None


def _refuse_unsupported(options: Mapping[str, Any] | None) -> None:
    given = dict(options or {})
    if (name := unsupported_option(given, in_training=True)) is not None:
        raise UnsupportedError(
            f"{name} = {given[name]!r} is not supported by a policy in this process. "
            "Leave it out."
        )


def _offered(tool: Tool | ToolSchema) -> dict[str, Any]:
    schema = tool.schema if isinstance(tool, Tool) else tool
    function = {
        "name": schema["name"],
        "description": schema.get("description", ""),
        "parameters": schema.get("parameters", {}),
    }
    return {"type": "function", "function": function}


def _openai(message: LLMMessage) -> Iterator[dict[str, Any]]:
    """Convert a message to OpenAI's format, as AutoGen's client does in training."""
    if isinstance(message, SystemMessage):
        yield {"role": "system", "content": message.content}
    elif isinstance(message, UserMessage):
        if not isinstance(message.content, str):
            raise UnsupportedError("The policy reads text alone; leave the images out.")
        yield {"role": "user", "name": message.source, "content": message.content}
    elif isinstance(message, FunctionExecutionResultMessage):
        for result in message.content:
            yield {
                "role": "tool",
                "content": result.content,
                "tool_call_id": result.call_id,
            }
    elif isinstance(message.content, str):
        yield {"role": "assistant", "content": message.content}
    else:
        yield {
            "role": "assistant",
            "content": message.thought,
            "tool_calls": [
                {
                    "id": call.id,
                    "type": "function",
                    "function": {"name": call.name, "arguments": call.arguments},
                }
                for call in message.content
            ],
        }
