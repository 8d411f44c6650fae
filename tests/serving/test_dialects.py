"""A served policy, asked in other dialects than chat completions."""

from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from openai import OpenAI

from agentgym.core.policy import ChatRequest
from agentgym.engines.scripted import Reply, ScriptedPolicy
from agentgym.serving.server import AgentServer

SCHEMA = {"type": "object", "properties": {"title": {"type": "string"}}}


def look_then_answer(request: ChatRequest) -> Reply:
    if request.messages[-1]["role"] == "tool":
        return Reply("Three.")
    return Reply(calls=[("stock", {"title": "Dune"})] if request.tools else [])


@pytest.fixture(scope="module")
def server() -> Iterator[AgentServer]:
    with AgentServer(["shop"]).start(ScriptedPolicy(look_then_answer)) as opened:
        yield opened


@pytest.mark.slow
def test_openais_client_has_its_responses(server: AgentServer) -> None:
    client = OpenAI(base_url=server.url, api_key="any", max_retries=0)
    tool: Any = {"type": "function", "name": "stock", "parameters": SCHEMA}
    asked: Any = [{"role": "user", "content": "How many copies of Dune?"}]
    first = client.responses.create(model="shop", input=asked, tools=[tool])
    [call] = first.output
    assert call.type == "function_call"
    assert (call.name, call.arguments) == ("stock", '{"title": "Dune"}')
    said = {"type": "function_call_output", "call_id": call.call_id, "output": "3"}
    asked += [call.model_dump(), said]
    with client.responses.stream(model="shop", input=asked, tools=[tool]) as stream:
        texts = [e.delta for e in stream if e.type == "response.output_text.delta"]
        last = stream.get_final_response()
    assert ("".join(texts), last.output_text) == ("Three.", "Three.")
    with pytest.raises(openai.BadRequestError, match="store=false"):
        client.responses.create(model="shop", input="?", previous_response_id="r")
    with pytest.raises(openai.NotFoundError, match="does not exist"):
        client.responses.create(model="another", input="?")


def test_messages_of_anthropics_are_answered(server: AgentServer) -> None:
    body: dict[str, Any] = {
        "model": "shop",
        "max_tokens": 64,
        "messages": [{"role": "user", "content": "How many copies of Dune?"}],
        "tools": [{"name": "stock", "input_schema": SCHEMA}],
    }
    url = f"{server.url}/messages"
    first = httpx.post(url, json=body).json()
    [use] = first["content"]
    assert (use["type"], use["name"], use["input"]) == (
        "tool_use",
        "stock",
        {"title": "Dune"},
    )
    result = {"type": "tool_result", "tool_use_id": use["id"], "content": "3"}
    body["messages"] += [
        {"role": "assistant", "content": first["content"]},
        {"role": "user", "content": [result]},
    ]
    streamed = httpx.post(url, json={**body, "stream": True})
    assert streamed.headers["content-type"].startswith("text/event-stream")
    assert '"text_delta","text":"Three."' in streamed.text
    refused = httpx.post(url, json={**body, "messages": []})
    assert refused.status_code == 400
    assert refused.json()["type"] == "error"
