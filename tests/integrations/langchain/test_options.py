"""What a call of the exported chat model asks for is done, or refused."""

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain.agents.structured_output import ToolStrategy
from langchain_core.messages import AIMessageChunk
from openai import BadRequestError
from pydantic import BaseModel

from agentgym.core.policy import ChatRequest
from agentgym.engines.scripted import Reply
from tests.integrations.exported import chat_model


class Answer(BaseModel):
    """An answer."""

    x: int


class Other(BaseModel):
    """Another answer."""

    y: int


class Asked:
    """A chat model that gives one reply, and what its policy was asked."""

    def __init__(self, content: str | None = None, *calls: tuple[str, str]) -> None:
        self.requests: list[ChatRequest] = []
        reply = Reply(content, list(calls))

        def respond(request: ChatRequest) -> Reply:
            self.requests.append(request)
            return reply

        self.model = chat_model(respond)


def streamed(model: Any, **options: Any) -> AIMessageChunk:
    first, *others = model.stream("x", **options)
    whole = first
    for chunk in others:
        whole += chunk
    assert isinstance(whole, AIMessageChunk)
    return whole


def test_a_call_that_is_asked_for_must_be_made() -> None:
    asked = Asked("Yes.")
    for choice in ("any", "required", True, "Answer"):
        asked.model.bind_tools([Answer, Other], tool_choice=choice).invoke("x")
    offered = [
        [tool["function"]["name"] for tool in request.tools]
        for request in asked.requests
    ]
    assert offered == [["Answer", "Other"]] * 3 + [["Answer"]]
    assert all(request.wants_call for request in asked.requests)
    assert [request.one_call for request in asked.requests] == [False] * 3 + [True]
    with pytest.raises(BadRequestError, match="tool_choice = 'Nobody' is none of"):
        asked.model.bind_tools([Answer], tool_choice="Nobody").invoke("x")


def test_a_structured_answer_is_a_call_of_a_tool() -> None:
    model = Asked(None, ("Answer", '{"x": 7}')).model
    structured = model.with_structured_output(Answer, method="function_calling")
    assert structured.invoke("x") == Answer(x=7)
    agent: Any = create_agent(model, [], response_format=ToolStrategy(Answer))
    state = agent.invoke({"messages": [("user", "x")]})
    assert state["structured_response"] == Answer(x=7)
    with pytest.raises(BadRequestError, match="response_format"):
        model.invoke("x", response_format={"type": "grammar"})


def test_a_schema_that_is_asked_for_is_the_answers_content() -> None:
    asked = Asked(None, ("Answer", '{"x": 7}'))
    said = asked.model.invoke("x", response_format=Answer)
    assert said.content == '{"x": 7}'
    assert not said.tool_calls
    [request] = asked.requests
    assert (request.form, request.wants_call, request.one_call) == (
        "Answer",
        True,
        True,
    )
    with pytest.raises(BadRequestError, match="has no name"):
        asked.model.invoke("x", response_format={"type": "json_schema"})


def test_a_call_that_cannot_be_read_runs_no_tool() -> None:
    model = Asked(None, ("f", '{"x": 1'), ("g", '{"x": 1}')).model
    whole, pieces = model.invoke("x"), streamed(model)
    for message in (whole, pieces):
        assert [call["name"] for call in message.tool_calls] == ["g"]
        assert [call["name"] for call in message.invalid_tool_calls] == ["f"]
