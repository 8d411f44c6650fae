"""A JSON schema that is asked for becomes a tool, and its call the answer."""

from typing import Any

import pytest

from agentgym.models.forms import form_as_tool, form_given

SCHEMA = {"type": "object", "properties": {"good": {"type": "boolean"}}}
ASKED = {"type": "json_schema", "json_schema": {"name": "Verdict", "schema": SCHEMA}}
LOOK = {"type": "function", "function": {"name": "look", "parameters": {}}}


def test_alone_it_is_the_tool_that_is_named() -> None:
    body, name = form_as_tool({"messages": [], "response_format": ASKED})
    assert name == "Verdict"
    assert "response_format" not in body
    [tool] = body["tools"]
    assert tool["function"]["parameters"] == SCHEMA
    assert body["tool_choice"]["function"] == {"name": "Verdict"}


@pytest.mark.parametrize(("choice", "kept"), [(None, "required"), ("auto", "auto")])
def test_beside_others_it_is_one_of_them(choice: Any, kept: str) -> None:
    asked = {"tools": [LOOK], "tool_choice": choice, "response_format": ASKED}
    body, _ = form_as_tool(asked)
    assert [tool["function"]["name"] for tool in body["tools"]] == ["look", "Verdict"]
    assert body["tool_choice"] == kept
    assert asked["tools"] == [LOOK]


@pytest.mark.parametrize(
    "asked", [None, {"type": "text"}, {"type": "json_object"}, {"json_schema": {}}]
)
def test_what_is_not_a_schema_stays(asked: Any) -> None:
    body = {"messages": [], "response_format": asked}
    assert form_as_tool(body) == (body, "")


@pytest.mark.parametrize(
    ("name", "arguments", "content"),
    [
        ("Verdict", '{"good": true}', '{"good": true}'),
        ("Verdict", "[]", None),
        ("look", "{}", None),
    ],
)
def test_its_call_is_the_content(name: str, arguments: str, content: Any) -> None:
    call = {"id": "1", "function": {"name": name, "arguments": arguments}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    given = form_given(message, "Verdict")
    assert given["content"] == content
    assert ("tool_calls" in given) is (content is None)
    assert form_given(message, "") == message
