"""A policy in this process as AutoGen's model client: done as asked, or refused."""

import asyncio
from typing import Any

import pytest
from autogen_core import CancellationToken, FunctionCall, Image
from autogen_core.models import CreateResult, LLMMessage, RequestUsage, UserMessage
from autogen_core.tools import FunctionTool
from openai import BadRequestError
from PIL.Image import new as new_image
from pydantic import BaseModel

from agentgym.core.policy import ChatRequest
from agentgym.engines.scripted import Reply
from agentgym.errors import UnsupportedError
from agentgym.plugins.autogen.agents import TrainedClient
from tests.integrations.exported import endpoint

ASKED: list[LLMMessage] = [UserMessage(content="x", source="user")]


def look(place: str) -> str:
    """Look somewhere."""
    return place


LOOK = FunctionTool(look, description="Look somewhere.")


class Asked:
    """A client that gives one reply, and what its policy was asked."""

    def __init__(self, content: str | None = None, *calls: tuple[str, str]) -> None:
        self.requests: list[ChatRequest] = []
        reply = Reply(content, list(calls))

        def respond(request: ChatRequest) -> Reply:
            self.requests.append(request)
            return reply

        self.client = TrainedClient(endpoint(respond, temperature=0.3))


async def streamed(client: TrainedClient, **options: Any) -> tuple[str, CreateResult]:
    pieces = [piece async for piece in client.create_stream(ASKED, **options)]
    last = pieces.pop()
    assert isinstance(last, CreateResult)
    return "".join(str(piece) for piece in pieces), last


async def test_a_text_comes_whole_and_in_pieces() -> None:
    client = Asked("one two").client
    whole = await client.create(ASKED)
    assert (whole.content, whole.finish_reason) == ("one two", "stop")
    assert client.total_usage() == client.actual_usage() == whole.usage
    text, last = await streamed(client)
    assert text == "one two"
    assert last == whole
    twice = RequestUsage(
        2 * whole.usage.prompt_tokens, 2 * last.usage.completion_tokens
    )
    assert client.total_usage() == twice


async def test_calls_come_as_the_policy_wrote_them() -> None:
    client = Asked("Hm.", ("look", '{"place": "a"'), ("no_such", "{}")).client
    whole = await client.create(ASKED, tools=[LOOK])
    assert (whole.finish_reason, whole.thought) == ("function_calls", "Hm.")
    written = [c for c in whole.content if isinstance(c, FunctionCall)]
    assert [(c.name, c.arguments) for c in written] == [
        ("look", '{"place": "a"'),
        ("no_such", "{}"),
    ]
    pieces = (await streamed(client, tools=[LOOK]))[1].content
    assert [(c.name, c.arguments) for c in pieces] == [
        (c.name, c.arguments) for c in written
    ]


async def test_a_call_says_how_it_is_sampled() -> None:
    asked = Asked("Yes.")
    own = {"temperature": 1.0, "max_tokens": 7, "seed": 5}
    await asked.client.create(ASKED, extra_create_args=own)
    await streamed(asked.client, extra_create_args={"seed": 6})
    await asked.client.create(ASKED)
    sampled = [(r.temperature, r.max_tokens, r.seed) for r in asked.requests]
    assert sampled == [(1.0, 7, 5), (0.3, 160, 6), (0.3, 160, 2)]


class Answer(BaseModel):
    x: int


@pytest.mark.parametrize(
    ("wanted", "form"), [(Answer, "Answer"), (True, "json"), (False, ""), (None, "")]
)
async def test_an_answer_in_a_form_is_its_content(wanted: Any, form: str) -> None:
    asked = Asked(None, (form, '{"x": 7}')) if form else Asked("Yes.")
    said = await asked.client.create(ASKED, json_output=wanted)
    _, whole = await streamed(asked.client, json_output=wanted)
    assert said.content == whole.content == ('{"x": 7}' if form else "Yes.")
    assert said.finish_reason == "stop"
    assert [request.form for request in asked.requests] == [form, form]
    assert [request.wants_call for request in asked.requests] == [bool(form)] * 2


async def test_what_a_policy_does_not_do_is_refused() -> None:
    client = Asked("Yes.").client
    options: Any = {"extra_create_args": {"n": 2}}
    with pytest.raises(BadRequestError, match="n = 2 is not supported"):
        await client.create(ASKED, **options)
    with pytest.raises(BadRequestError, match="n = 2 is not supported"):
        await streamed(client, **options)


async def test_sampling_options_of_training_are_accepted_and_stop_cuts() -> None:
    client = Asked("One. Two.").client
    options: Any = {"stop": [" Two"], "parallel_tool_calls": False, "top_p": 0.5}
    said = await client.create(ASKED, extra_create_args=options)
    _, whole = await streamed(client, extra_create_args=options)
    assert said.content == whole.content == "One."


async def test_images_and_counting_what_has_no_tokens_are_refused() -> None:
    client = Asked("Yes.").client
    picture = Image(new_image("RGB", (1, 1)))
    with pytest.raises(ValueError, match="does not support vision"):
        await client.create([UserMessage(content=[picture], source="user")])
    with pytest.raises(UnsupportedError, match="does not count tokens"):
        client.count_tokens(ASKED)


async def test_a_cancelled_call_ends() -> None:
    token = CancellationToken()
    token.cancel()
    with pytest.raises(asyncio.CancelledError):
        await Asked("Yes.").client.create(ASKED, cancellation_token=token)
