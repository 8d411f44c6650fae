"""The clients that are AutoGen's own send what AutoGen's own sends, but ``strict``."""

import copy
import json
from typing import Any

import httpx
import pytest
from autogen_core import FunctionCall
from autogen_core.models import (
    AssistantMessage,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    LLMMessage,
    SystemMessage,
    UserMessage,
)
from autogen_core.tools import FunctionTool
from autogen_ext.models.openai import OpenAIChatCompletionClient

from agentgym.plugins.autogen.agents import (
    POLICY_INFO,
    GatewayClient,
    PlainOpenAIClient,
)

KINDS = (OpenAIChatCompletionClient, PlainOpenAIClient, GatewayClient)
CALL = FunctionCall(id="c1", name="look", arguments='{"place": "a"}')
RESULT = FunctionExecutionResult(content="a", name="look", call_id="c1", is_error=False)
SAID: list[LLMMessage] = [
    SystemMessage(content="Be brief."),
    UserMessage(content="Look at a", source="user"),
    AssistantMessage(content=[CALL], source="agent"),
    FunctionExecutionResultMessage(content=[RESULT]),
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
            "message": {"role": "assistant", "content": "hi"},
        }
    ],
}


def look(place: str, often: list[int] | None = None) -> str:
    """Look somewhere."""
    return place


LOOK = FunctionTool(look, description="Look somewhere.")


class Wire:
    """A client that keeps the bodies of its requests."""

    def __init__(self, kind: type[OpenAIChatCompletionClient], **options: Any) -> None:
        self.bodies: list[dict[str, Any]] = []
        transport = httpx.MockTransport(self._answer)
        given: dict[str, Any] = {
            "model": "m",
            "base_url": "http://gateway.invalid/v1",
            "api_key": "key",
            "max_retries": 0,
            "http_client": httpx.AsyncClient(transport=transport),
            "model_info": POLICY_INFO,
        }
        self.client = kind(**given, **options)

    def _answer(self, request: httpx.Request) -> httpx.Response:
        self.bodies.append(json.loads(request.content))
        if not self.bodies[-1].get("stream"):
            return httpx.Response(200, json=ANSWER)
        chunk = ANSWER | {"object": "chat.completion.chunk"}
        choice = {"index": 0, "delta": {"content": "hi"}, "finish_reason": "stop"}
        line = json.dumps(chunk | {"choices": [choice]})
        return httpx.Response(
            200,
            headers={"content-type": "text/event-stream"},
            text=f"data: {line}\n\ndata: [DONE]\n\n",
        )


@pytest.mark.parametrize(
    "options", [{}, {"temperature": 0.3, "extra_body": {"seed_of_mine": 7}}]
)
async def test_same_requests_without_strict(options: dict[str, Any]) -> None:
    wires = [Wire(kind, **options) for kind in KINDS]
    for wire in wires:
        answer = await wire.client.create(SAID, tools=[LOOK])
        assert answer.content == "hi"
        pieces = [p async for p in wire.client.create_stream(SAID, tools=[LOOK])]
        assert pieces[0] == "hi"
        await wire.client.create(SAID)
    theirs, plain, gateway = (wire.bodies for wire in wires)
    expected = copy.deepcopy(theirs)
    for body in expected[:2]:
        assert body["tools"][0]["function"].pop("strict") is False
    assert len(theirs[0]["messages"]) == 4
    assert plain == expected
    assert gateway == expected
