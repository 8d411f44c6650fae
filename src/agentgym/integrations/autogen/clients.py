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
    multiple_system_messages=True,  # else they are joined, and stripped of spaces
)
"""The abilities of a policy."""


class PlainOpenAIClient(OpenAIChatCompletionClient):
    """The client of AutoGen, whose tools reach the model with their schema alone.

    AutoGen adds ``strict: false``, the default of servers; chat
    templates write it into the prompt, and a policy would read other tools than it
    was trained with.
    """

    def _process_create_args(self, *args: Any, **named: Any) -> Any:
        params = super()._process_create_args(*args, **named)
        for tool in params.tools:
            if tool["function"].get("strict") is False:
                del tool["function"]["strict"]
        return params


class GatewayClient(PlainOpenAIClient):
    """The same for many calls to the gateway, which get the name of the speaking role.

    The openai package compares every request with its type annotations, which takes
    longer than sending it. Fields in ``extra_body`` are sent unchanged, in the same
    places of the same JSON.
    """

    def _process_create_args(self, *args: Any, **named: Any) -> Any:
        params = super()._process_create_args(*args, **named)
        if params.response_format is not None:
            return params  # the package parses the answer with the tools
        body: dict[str, Any] = {"messages": params.messages}
        if params.tools:
            body["tools"] = params.tools
        body |= params.create_args.get("extra_body") or {}
        options = {**params.create_args, "extra_body": body}
        return replace(params, messages=[], tools=[], create_args=options)

    async def create(self, *args: Any, **named: Any) -> CreateResult:
        """Ask the policy, as the agent that the running message is for."""
        with _as_member():
            return await super().create(*args, **named)

    async def create_stream(
        self, *args: Any, **named: Any
    ) -> AsyncGenerator[str | CreateResult]:
        """Ask the policy, and yield the answer as it comes."""
        pieces = super().create_stream(*args, **named)
        while True:
            with _as_member():  # not around the yield: who iterates has a context too
                piece = await anext(pieces, None)
            if piece is None:
                return
            yield piece


@contextmanager
def _as_member() -> Iterator[None]:
    """Speak as the member of a team whose message is handled; else as it was."""
    try:
        member = MessageHandlerContext.agent_id().type
    except RuntimeError:  # an agent that is run on its own
        yield
        return
    with speaking_as(member.rpartition("_")[0] or member):  # a team adds its own id
        yield
