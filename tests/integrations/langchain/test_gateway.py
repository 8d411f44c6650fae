"""The cheaper ``ChatOpenAI`` sends what LangChain's own sends."""

import json
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from openai import APIError
from pydantic import BaseModel

from agentgym.core.task import Split, Task
from agentgym.integrations.base import Blueprint
from agentgym.integrations.episode import Episode
from agentgym.integrations.langchain.models import GatewayChatOpenAI
from agentgym.integrations.transport import (
    PLACEHOLDER,
    EpisodePosts,
    episode_client,
    speaking_as,
)
from agentgym.scenarios.base import Environment

CONVERSATION = [
    SystemMessage("Be brief."),
    HumanMessage("Read a.py"),
    AIMessage(
        "", tool_calls=[{"name": "read_file", "args": {"path": "a.py"}, "id": "call_1"}]
    ),
    ToolMessage("x = 1", tool_call_id="call_1"),
]
ANSWER = {
    "id": "c",
    "object": "chat.completion",
    "created": 0,
    "model": "m",
    "choices": [
        {
            "index": 0,
            "finish_reason": "stop",
            "message": {"role": "assistant", "content": '{"path": "a.py"}'},
        }
    ],
}


@tool
def read_file(path: str, lines: list[int] | None = None) -> str:
    """Return a file's text."""
    return path


TASK = Task(id="t", instruction="go", split=Split.TRAIN, seed=0, family="f", level=1)


class NoTools(Environment):
    """An environment without tools."""


class Place(BaseModel):
    """Where something is."""

    path: str


class Wire:
    """A model's client that keeps the bodies of its requests."""

    def __init__(self, kind: type[ChatOpenAI], **options: Any) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.model = kind(
            model="m",
            base_url="http://gateway.invalid/v1",
            api_key="key",
            max_retries=0,
            http_async_client=httpx.AsyncClient(
                transport=httpx.MockTransport(self._answer)
            ),
            **options,
        )

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.bodies.append(json.loads(request.content))
        if self.bodies[-1].get("stream"):
            chunk = ANSWER | {"object": "chat.completion.chunk"}
            choice = {"index": 0, "delta": {"content": "hi"}, "finish_reason": None}
            line = json.dumps(chunk | {"choices": [choice]})
            return httpx.Response(
                200,
                headers={"content-type": "text/event-stream"},
                text=f"data: {line}\n\ndata: [DONE]\n\n",
            )
        return httpx.Response(200, json=ANSWER)


@pytest.mark.parametrize(
    "options", [{}, {"temperature": 0.3, "extra_body": {"seed_of_mine": 7}}]
)
async def test_same_request_with_tools(options: dict[str, Any]) -> None:
    wires = [Wire(kind, **options) for kind in (ChatOpenAI, GatewayChatOpenAI)]
    for wire in wires:
        answer = await wire.model.bind_tools([read_file]).ainvoke(CONVERSATION)
        assert answer.text == '{"path": "a.py"}'
        chunks = [c async for c in wire.model.bind_tools([read_file]).astream("hi")]
        assert chunks[0].text == "hi"
        await wire.model.ainvoke("no tools", stop=["x"])
    theirs, ours = wires
    assert theirs.bodies[0]["tools"][0]["function"]["name"] == "read_file"
    assert len(theirs.bodies[0]["messages"]) == 4
    assert ours.bodies == theirs.bodies


@pytest.mark.parametrize("status", [200, 400, 503])
async def test_posts_do_what_the_package_does(status: int) -> None:
    error = {"message": "too long", "code": "context_length_exceeded", "type": "x"}
    bodies: list[Any] = []

    async def answer(request: web.Request) -> web.Response:
        body = await request.json()
        assert not body.pop("stream", False)
        bodies.append((body, request.headers.get("X-Agent-ID")))
        given = ANSWER if status == 200 else {"error": error}
        return web.json_response(given, status=status)

    app = web.Application()
    app.router.add_post("/{path:.*}", answer)
    async with TestServer(app) as server, AsyncExitStack() as stack:
        blueprint = Blueprint(
            "", [], 5, str(server.make_url("")).rstrip("/"), "key", "m", 4
        )
        posts = EpisodePosts(blueprint)
        found = []
        for given in (None, posts):
            episode = Episode(TASK)
            episode.enter(NoTools())
            model = GatewayChatOpenAI(
                model="m",
                base_url=blueprint.gateway + PLACEHOLDER,
                api_key="key",
                max_retries=0,
                http_async_client=await stack.enter_async_context(
                    episode_client(blueprint)
                ),
            )
            model._posts = given
            with speaking_as("clerk"):
                try:
                    said = await model.bind_tools([read_file]).ainvoke(CONVERSATION)
                    found.append((said.text, said.response_metadata["finish_reason"]))
                except APIError as raised:
                    found.append((type(raised), str(raised), raised.body))
            counts = episode.turns, episode.answered, episode.overflowed
            assert counts == (1, int(status == 200), status == 400)
        posts.close()
    assert found[0] == found[1]
    assert bodies[0] == bodies[1]
    assert bodies[0][1] == "clerk"
    assert len(bodies) == 2


async def test_structured_answers_are_left_to_the_package() -> None:
    wires = [Wire(kind) for kind in (ChatOpenAI, GatewayChatOpenAI)]
    for wire in wires:
        structured = wire.model.with_structured_output(Place, method="json_schema")
        assert await structured.ainvoke("Where?") == Place(path="a.py")
    theirs, ours = wires
    assert ours.bodies == theirs.bodies
