"""Events that clients post: what cannot have been sampled or scored is not recorded."""

from typing import Any

import pytest

from agentgym.core.openai import Completion
from agentgym.errors import RecordError
from agentgym.rollout.store.records import check_event


def answer(*logprobs: Any) -> dict[str, Any]:
    """Return the payload of a model call whose tokens have these log-probabilities."""
    choice = {
        "message": {"role": "assistant", "content": "hi"},
        "token_ids": [5] * len(logprobs),
        "logprobs": {"content": [{"token": "x", "logprob": p} for p in logprobs]},
    }
    return {"response": {"choices": [choice], "prompt_token_ids": [1]}}


@pytest.mark.parametrize("logprob", [3, 0.5, 1e308, -1e308])
def test_a_log_probability_that_none_can_have_is_refused(logprob: float) -> None:
    with pytest.raises(RecordError, match="it has the log-probability"):
        check_event("model_request", answer(-0.5, logprob))
    sampled = Completion(answer(-0.5, logprob)["response"])
    assert sampled.logprobs is None, "a server's answer is not trained on"


def test_log_probabilities_of_servers_are_taken() -> None:
    values = [0, -0.5, 1e-6, -9999.0]
    check_event("model_request", answer(*values))
    assert Completion(answer(*values)["response"]).logprobs == values
    check_event("model_request", answer(None))  # streams lack some


@pytest.mark.parametrize("value", [1e308, -1e10, True, "1", None])
def test_a_reward_that_none_can_have_is_refused(value: Any) -> None:
    with pytest.raises(RecordError, match="its value is"):
        check_event("reward", {"value": value})
    check_event("reward", {"value": -1e9})
