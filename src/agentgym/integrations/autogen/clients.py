"""AutoGen's OpenAI client, for servers of a policy and for the gateway."""

from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from autogen_core import MessageHandlerContext
from autogen_core.models import CreateResult, ModelInfo
from autogen_ext.models.openai import OpenAIChatCompletionClient

from agentgym.integrations.transport import speaking_as

POLICY_INFO = ModelInfo(
    vision=False,
    function_calling=True,
    json_output=True,
    family="unknown",
    structured_output=True,
    multiple_system_messages=True,  # otherwise they are joined, and stripped of spaces
)
"""A policy's abilities, in AutoGen's form."""


class PlainOpenAIClient(OpenAIChatCompletionClient):
    """AutoGen's client, without the extra field ``strict`` in tools.

    AutoGen adds ``strict: false``, the default of servers. Chat templates would write
    it into the prompt, and the policy would read other tools than in training.
    """

    def _process_create_args(self, *args: Any, **named: Any) -> Any:
        params = super()._process_create_args(*args, **named)
        for tool in params.tools:
            if tool["function"].get("strict") is False:
                del tool["function"]["strict"]
        return params


class GatewayClient(PlainOpenAIClient):
    """A client for the gateway, with the role's name in each request.

    The openai package compares every request with its type annotations, which takes
    longer than sending it. Fields in ``extra_body`` are sent unchanged, at the same
    positions in the JSON.
    """

    def _process_create_args(self, *args: Any, **named: Any) -> Any:
        params = super()._process_create_args(*args, **named)
        if params.response_format is not None:
            return params  # the package uses the tools to parse the answer
        body: dict[str, Any] = {"messages": params.messages}
        if params.tools:
            body["tools"] = params.tools
        body |= params.create_args.get("extra_body") or {}
        options = {**params.create_args, "extra_body": body}
        return replace(params, messages=[], tools=[], create_args=options)

    async def create(self, *args: Any, **named: Any) -> CreateResult:
        """Ask the policy, in the role of the agent whose message is handled."""
        with _as_member():
            return await super().create(*args, **named)

    async def create_stream(
        self, *args: Any, **named: Any
    ) -> AsyncGenerator[str | CreateResult]:
        """Ask the policy, and stream the answer."""
        pieces = super().create_stream(*args, **named)
        while True:
            with _as_member():  # not around the yield: the consumer has its own context
                piece = await anext(pieces, None)
            if piece is None:
                return
            yield piece


@contextmanager
def _as_member() -> Iterator[None]:
    """Set the role to the team member whose message is handled, if there is one."""
    try:
        member = MessageHandlerContext.agent_id().type
    except RuntimeError:  # an agent without a team
        yield
        return
    with speaking_as(member.rpartition("_")[0] or member):  # a team appends its own id
        yield
