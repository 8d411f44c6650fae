"""Responses and Messages, converted to chat completions and back."""

import json
from typing import Any

import pytest

from agentgym.core.openai import ApiError
from agentgym.models.dialects.messages import MessagesDialect
from agentgym.models.dialects.responses import ResponsesDialect

SCHEMA = {"type": "object", "properties": {"title": {"type": "string"}}}
CHAT_TOOL = {
    "type": "function",
    "function": {"name": "stock", "description": "Copies.", "parameters": SCHEMA},
}
CALL = {
    "id": "call_1",
    "type": "function",
    "function": {"name": "stock", "arguments": '{"title":"Dune"}'},
}
MESSAGES, RESPONSES = MessagesDialect(), ResponsesDialect()


def completion(content: str | None, *calls: Any, reason: str = "stop") -> Any:
    message: dict[str, Any] = {"role": "assistant", "content": content}
    if calls:
        message["tool_calls"] = list(calls)
    usage = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}
    choices = [{"index": 0, "message": message, "finish_reason": reason}]
    return {"id": "c1", "model": "nano", "choices": choices, "usage": usage}


def events(stream: bytes) -> list[dict[str, Any]]:
    """Return the events of a stream; each names its type in both places."""
    found = []
    for text in stream.decode().strip().split("\n\n"):
        head, data = text.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert head == f"event: {event['type']}"
        found.append(event)
    return found


def test_a_conversation_of_anthropics_is_a_chat() -> None:
    body = {
        "model": "nano",
        "max_tokens": 64,
        "system": [{"type": "text", "text": "Be brief."}],
        "stream": True,
        "messages": [
            {"role": "user", "content": "Is Dune there?"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "…", "signature": "s"},
                    {"type": "text", "text": "I look."},
                    {
                        "type": "tool_use",
                        "id": "call_1",
                        "name": "stock",
                        "input": {"title": "Dune"},
                    },
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "call_1",
                        "content": [{"type": "text", "text": "no shelf"}],
                        "is_error": True,
                    },
                    {"type": "text", "text": "Go on."},
                ],
            },
        ],
        "tools": [{"name": "stock", "description": "Copies.", "input_schema": SCHEMA}],
        "tool_choice": {"type": "tool", "name": "stock"},
        "stop_sequences": ["END"],
        "metadata": {"user_id": "clerk"},
    }
    assert MESSAGES.read(body) == {
        "model": "nano",
        "max_tokens": 64,
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Is Dune there?"},
            {"role": "assistant", "content": "I look.", "tool_calls": [CALL]},
            {
                "role": "tool",
                "tool_call_id": "call_1",
                "content": "no shelf",
                "is_error": True,
            },
            {"role": "user", "content": "Go on."},
        ],
        "tools": [CHAT_TOOL],
        "tool_choice": {"type": "function", "function": {"name": "stock"}},
        "stop": ["END"],
        "user": "clerk",
    }


def test_a_tool_whose_loading_is_deferred_is_not_offered_to_the_model() -> None:
    stock = {"name": "stock", "description": "Copies.", "input_schema": SCHEMA}
    later = {**stock, "name": "later", "defer_loading": True}
    asked = [{"role": "user", "content": "Is Dune there?"}]
    body = {"model": "nano", "messages": asked, "tools": [later, stock]}
    [tool] = MESSAGES.read(body)["tools"]
    assert tool["function"]["name"] == "stock"


def test_items_of_openais_responses_are_a_chat() -> None:
    body = {
        "model": "nano",
        "instructions": "Be brief.",
        "max_output_tokens": 64,
        "input": [
            {"role": "user", "content": [{"type": "input_text", "text": "Is Dune?"}]},
            {"type": "reasoning", "id": "rs", "summary": []},
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "I look."}],
            },
            {
                "type": "function_call",
                "call_id": "call_1",
                "name": "stock",
                "arguments": '{"title":"Dune"}',
            },
            {"type": "function_call_output", "call_id": "call_1", "output": "3"},
        ],
        "tools": [{"type": "function", **CHAT_TOOL["function"], "strict": True}],  # type: ignore[dict-item]
        "text": {"format": {"type": "json_schema", "name": "n", "schema": SCHEMA}},
    }
    assert RESPONSES.read(body) == {
        "model": "nano",
        "max_tokens": 64,
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Is Dune?"},
            {"role": "assistant", "content": "I look.", "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "call_1", "content": "3"},
        ],
        "tools": [CHAT_TOOL],
        "response_format": {
            "type": "json_schema",
            "json_schema": {"name": "n", "schema": SCHEMA},
        },
    }
    assert RESPONSES.read({"input": "Hello."})["messages"] == [
        {"role": "user", "content": "Hello."}
    ]


def test_answers_come_back_as_the_messages_that_the_model_wrote() -> None:
    said = completion("I look.", CALL, reason="tool_calls")
    answer = MESSAGES.answer(said, {})
    assert answer["stop_reason"] == "tool_use"
    assert answer["usage"] == {"input_tokens": 7, "output_tokens": 3}
    again = {"role": "assistant", "content": answer["content"]}
    body = {"messages": [{"role": "user", "content": "?"}, again]}
    wrote = {"role": "assistant", "content": "I look.", "tool_calls": [CALL]}
    assert MESSAGES.read(body)["messages"][1] == wrote
    items = RESPONSES.answer(said, {})["output"]
    assert RESPONSES.read({"input": items})["messages"] == [wrote]


def test_the_end_of_an_answer_is_said() -> None:
    cut = completion("I", reason="length")
    assert MESSAGES.answer(cut, {})["stop_reason"] == "max_tokens"
    assert RESPONSES.answer(cut, {})["status"] == "incomplete"
    done = completion("Yes.")
    assert MESSAGES.answer(done, {})["stop_reason"] == "end_turn"
    assert RESPONSES.answer(done, {})["status"] == "completed"
    assert MESSAGES.answer(completion(None), {})["content"][0]["text"] == ""


def test_streams_end_in_the_same_answer() -> None:
    said = completion("I look.", CALL, reason="tool_calls")
    found = events(RESPONSES.stream(said, {}))
    assert [event["sequence_number"] for event in found] == list(range(len(found)))
    assert found[-1]["type"] == "response.completed"
    assert found[-1]["response"] == RESPONSES.answer(said, {})
    deltas = [event["delta"] for event in found if event["type"].endswith(".delta")]
    assert deltas == ["I look.", CALL["function"]["arguments"]]  # type: ignore[index]
    found = events(MESSAGES.stream(said, {}))
    assert [event["type"] for event in found] == [
        "message_start",
        *["content_block_start", "content_block_delta", "content_block_stop"] * 2,
        "message_delta",
        "message_stop",
    ]
    assert found[2]["delta"] == {"type": "text_delta", "text": "I look."}
    assert json.loads(found[5]["delta"]["partial_json"]) == {"title": "Dune"}
    assert found[-2]["delta"]["stop_reason"] == "tool_use"


IMAGE = {"type": "image", "source": {}}
PICTURE = {"type": "input_image", "image_url": "…"}


@pytest.mark.parametrize(
    ("dialect", "body", "wording"),
    [
        (MESSAGES, {}, "'messages' must be a list of messages"),
        (
            MESSAGES,
            {"messages": [{"role": "user", "content": [IMAGE]}]},
            r"messages\[0\]\.content\[0\] is of type 'image'",
        ),
        (
            MESSAGES,
            {
                "messages": [{"role": "user", "content": "?"}],
                "tools": [{"type": "web_search_20250305", "name": "web_search"}],
            },
            "only Anthropic runs",
        ),
        (RESPONSES, {"input": "?", "previous_response_id": "resp_1"}, "store=false"),
        (RESPONSES, {}, "of type None, not a text"),
        (
            RESPONSES,
            {"input": [{"role": "user", "content": [PICTURE]}]},
            "of type 'input_image', not a text",
        ),
        (RESPONSES, {"input": [{"type": "item_reference", "id": "x"}]}, "item_ref"),
        (RESPONSES, {"input": "?", "tools": [{"type": "web_search"}]}, "web_search"),
    ],
)
def test_what_no_chat_can_do_is_refused(dialect: Any, body: Any, wording: str) -> None:
    with pytest.raises(ApiError, match=wording) as caught:
        dialect.read(body)
    assert caught.value.status == 400
    shown = dialect.error(caught.value)["error"]
    assert shown["message"] == caught.value.message
    assert shown["type"] == "invalid_request_error"
