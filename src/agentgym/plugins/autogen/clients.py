"""AutoGen model clients: one for training, and one for trained models."""

from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from autogen_core import MessageHandlerContext
from autogen_core.models import CreateResult, LLMMessage, ModelInfo
from autogen_core.tools import Tool, ToolSchema
from autogen_ext.models.openai import OpenAIChatCompletionClient

from agentgym.integrations.export import TrainedEndpoint
from agentgym.integrations.transport import speaking_as

POLICY_INFO = ModelInfo(
    vision=False,
    function_calling=True,
    json_output=True,
    family="unknown",
    structured_output=True,
    multiple_system_messages=True,  # else AutoGen joins and strips them
)
"""The abilities of the trained model, in AutoGen's format."""


class PlainOpenAIClient(OpenAIChatCompletionClient):
    """AutoGen's OpenAI client, but it sends tools without the field ``strict``.

    AutoGen adds ``strict: false``. Chat templates would write this field into the
    prompt. Without the field, servers assume the same value.

    Messages and tools are passed in the argument ``extra_body``, which the openai
    package sends unchecked. In other arguments, the package would compare them with its
    type annotations, which takes longer than sending them. The JSON is the same.
    """

    def _process_create_args(self, *args: Any, **named: Any) -> Any:
        params = super()._process_create_args(*args, **named)
        for tool in params.tools:
            if tool["function"].get("strict") is False:
                del tool["function"]["strict"]
        if params.response_format is not None:
            return params  # openai needs the tools to parse the answer
        body: dict[str, Any] = {"messages": params.messages}
        if params.tools:
            body["tools"] = params.tools
        body |= params.create_args.get("extra_body") or {}
        options = {**params.create_args, "extra_body": body}
        return replace(params, messages=[], tools=[], create_args=options)


class TrainedClient(PlainOpenAIClient):
    """Calls a trained model, in this process or on a server."""

    def __init__(self, endpoint: TrainedEndpoint) -> None:
        options: dict[str, Any] = {}
        if endpoint.transport is not None:
            usage = {"include_usage": True}  # else streams count no tokens
            options = {"max_retries": 0, "stream_options": usage}
            options["http_client"] = endpoint.http()
        super().__init__(
            model=endpoint.model,
            base_url=endpoint.base_url,
            api_key=endpoint.api_key,
            temperature=endpoint.temperature,
            max_tokens=endpoint.max_tokens,
            model_info=POLICY_INFO,
            **options,
        )
        self._transport = endpoint.transport

    def count_tokens(
        self,
        messages: Sequence[LLMMessage],
        *,
        tools: Sequence[Tool | ToolSchema] = (),
    ) -> int:
        """Return the number of tokens in the prompt; AutoGen's estimate for servers."""
        if self._transport is None:
            return super().count_tokens(messages, tools=tools)
        return self._room(messages, tools)[0]

    def remaining_tokens(
        self,
        messages: Sequence[LLMMessage],
        *,
        tools: Sequence[Tool | ToolSchema] = (),
    ) -> int:
        """Return how many more tokens fit into the model's context after the prompt."""
        if self._transport is None:
            return super().remaining_tokens(messages, tools=tools)
        return self._room(messages, tools)[1]

    def _room(
        self, messages: Sequence[LLMMessage], tools: Sequence[Tool | ToolSchema]
    ) -> tuple[int, int]:
        params = self._process_create_args(messages, tools, "auto", None, {})
        found: tuple[int, int] = self._transport.room(params.create_args["extra_body"])
        return found


class GatewayClient(PlainOpenAIClient):
    """Calls the training gateway, and sends the calling agent's name."""

    async def create(self, *args: Any, **named: Any) -> CreateResult:
        """Send a request to the policy, with the name of the active team member."""
        with _as_member():
            return await super().create(*args, **named)

    async def create_stream(
        self, *args: Any, **named: Any
    ) -> AsyncGenerator[str | CreateResult]:
        """Send a request like :meth:`create`, and stream the answer."""
        pieces = super().create_stream(*args, **named)
        while True:
            with _as_member():  # not around the yield: the consumer has its own context
                piece = await anext(pieces, None)
            if piece is None:
                return
            yield piece


@contextmanager
def _as_member() -> Iterator[None]:
    """Send the name of the active team member, if any, with requests in the block."""
    try:
        member = MessageHandlerContext.agent_id().type
    except RuntimeError:  # an agent without a team
        yield
        return
    with speaking_as(member.rpartition("_")[0] or member):  # a team appends its own id
        yield
