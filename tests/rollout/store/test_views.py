"""What a worker is sent of model calls, and how a reward sees them."""

from typing import Any

import orjson
import pytest

from agentgym.core.trajectory import ModelCall
from agentgym.rollout.store.records import RecordedCall, pack_calls, unpack_calls

TOOLS = [{"type": "function", "function": {"name": "look"}}]
IDS = ("prompt_ids", "response_ids", "logprobs")


def recorded(agent: str, *messages: str, tools: Any = TOOLS) -> RecordedCall:
    asked = [{"role": "user", "content": text} for text in messages]
    function = {"name": "look", "arguments": "{}"}
    message = {"content": "hm", "tool_calls": [{"id": "1", "function": function}]}
    choice = {
        "message": message,
        "finish_reason": "tool_calls",
        "token_ids": [7, 8],
        "logprobs": {"token_logprobs": [-0.5, -0.1]},
    }
    response = {"choices": [choice], "prompt_token_ids": [1, 2, 3]}
    request = {"messages": asked, "tools": tools, "tool_choice": "required"}
    return RecordedCall({"agent": agent, "request": request, "response": response})


CALLS = [
    recorded("a", "x"),
    recorded("b", "y", "z", tools=[]),
    recorded("a", "x", "more"),
    recorded("a", "x", "other", "more"),
    recorded("b", "y", "z", tools=None),
    recorded("a", "short"),
]


def test_calls_arrive_whole_but_for_ids() -> None:
    sent = orjson.dumps(pack_calls(CALLS))
    for call, given in zip(unpack_calls(orjson.loads(sent)), CALLS, strict=True):
        whole = given.to_model_call().model_dump(exclude={*IDS})
        counts = {"prompt_tokens": 3, "response_tokens": 2}
        assert call.model_dump() == whole | counts
        assert call.token_counts == given.to_model_call().token_counts == (3, 2)
        assert ModelCall.model_validate(call.model_dump()).messages == call.messages
        for name in IDS:
            with pytest.raises(AttributeError, match=f"without {name}: token ids"):
                getattr(call, name)
    with pytest.raises(AttributeError, match="has no attribute 'prompt'"):
        call.prompt  # noqa: B018


def test_what_a_call_repeats_is_sent_once() -> None:
    packed = pack_calls(CALLS)
    assert [call["repeats"] for call in packed] == [0, 0, 1, 1, 2, 0]
    assert [len(call["messages"]) for call in packed] == [1, 2, 1, 2, 0, 1]
    assert ["tools" in call for call in packed] == [True, True, *4 * [False]]
