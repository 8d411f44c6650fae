"""A JSON schema that is asked for becomes a tool, and its call the answer."""

from typing import Any

import pytest

from agentgym.core.trajectory import ModelCall, RequestedCall
from agentgym.models.forms import NO_FORM, answers_any_object, form_as_tool, form_given

SCHEMA = {"type": "object", "properties": {"good": {"type": "boolean"}}}
ASKED: Any = {
    "type": "json_schema",
    "json_schema": {"name": "Verdict", "schema": SCHEMA},
}
LOOK = {"type": "function", "function": {"name": "look", "parameters": {}}}


def test_alone_it_is_the_tool_that_is_named() -> None:
    body, form = form_as_tool({"messages": [], "response_format": ASKED})
    assert form == ("Verdict", True)
    assert "response_format" not in body
    [tool] = body["tools"]
    assert tool["function"]["parameters"] == SCHEMA
    assert body["tool_choice"]["function"] == {"name": "Verdict"}


@pytest.mark.parametrize(
    ("choice", "kept"), [(None, "required"), ("auto", "required"), ("look", "look")]
)
def test_beside_others_it_is_one_of_them(choice: Any, kept: str) -> None:
    asked = {"tools": [LOOK], "tool_choice": choice, "response_format": ASKED}
    body, _ = form_as_tool(asked)
    assert [tool["function"]["name"] for tool in body["tools"]] == ["look", "Verdict"]
    assert body["tool_choice"] == kept
    assert asked["tools"] == [LOOK]


def test_a_tool_of_the_same_name_stays_the_agents() -> None:
    asked = {"type": "json_schema", "json_schema": {"name": "look", "schema": SCHEMA}}
    body, form = form_as_tool({"tools": [LOOK], "response_format": asked})
    assert form.name == "look_answer"
    assert body["tools"][0] == LOOK


def test_any_json_object_is_a_form_too() -> None:
    body, form = form_as_tool({"response_format": {"type": "json_object"}})
    [tool] = body["tools"]
    assert tool["function"]["name"] == form.name == "json"
    assert tool["function"]["parameters"] == {"type": "object"}
    call = RequestedCall(id="1", name="json", arguments="{}")
    made = ModelCall(tools=[tool], tool_calls=[call], wants_call=True)
    assert answers_any_object(made)
    assert not answers_any_object(made.model_copy(update={"tool_calls": []}))
    in_schema = form_as_tool({"response_format": ASKED})[0]["tools"]
    named = RequestedCall(id="1", name="Verdict", arguments="{}")
    schema = {"tools": in_schema, "tool_calls": [named]}
    assert not answers_any_object(made.model_copy(update=schema))


@pytest.mark.parametrize("asked", [None, {"type": "text"}])
def test_what_is_not_a_schema_stays(asked: Any) -> None:
    body = {"messages": [], "response_format": asked}
    assert form_as_tool(body) == (body, NO_FORM)


@pytest.mark.parametrize(
    ("given", "wording"),
    [
        ({"schema": SCHEMA}, "has no name"),
        ({"name": "V", "schema": []}, "is not an object"),
        ({"name": "V", "schema": {"type": "array"}}, "must be an object"),
    ],
)
def test_a_malformed_schema_is_named(given: Any, wording: str) -> None:
    asked = {"type": "json_schema", "json_schema": given}
    with pytest.raises(ValueError, match=wording):
        form_as_tool({"response_format": asked})


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
