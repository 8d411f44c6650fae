"""The cheaper ``ChatOpenAI`` sends what LangChain's own sends."""

import json
from typing import Any

import httpx
import pytest
from langchain_core.messages import AIMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

from agentgym.integrations.langchain.gateway import GatewayChatOpenAI

CONVERSATION = [
    SystemMessage("Be brief."),
    HumanMessage("Read a.py"),
    AIMessage(
        "",
        tool_calls=[{"name": "read_file", "args": {"path": "a.py"}, "id": "call_1"}],
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


async def test_structured_answers_are_left_to_the_package() -> None:
    wires = [Wire(kind) for kind in (ChatOpenAI, GatewayChatOpenAI)]
    for wire in wires:
        structured = wire.model.with_structured_output(Place, method="json_schema")
        assert await structured.ainvoke("Where?") == Place(path="a.py")
    theirs, ours = wires
    assert ours.bodies == theirs.bodies
