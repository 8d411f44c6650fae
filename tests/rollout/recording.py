"""Records of model calls, as the gateway makes them."""

from typing import Any

import orjson

from agentgym.rollout.store.records import RecordedCall
from agentgym.rollout.store.store import Store


def recorded_by(store: Store, rollout_id: str, call: RecordedCall) -> None:
    """Have a call recorded as the gateway does, in a rollout's first attempt."""
    store.record_call(rollout_id, "0", orjson.dumps(call.data))


def record(
    text: str = "x",
    *,
    request: dict[str, Any] | None = None,
    agent: str = "agent",
    version: int = 0,
    prompt_ids: list[int] | None = None,
    response_ids: list[int] | None = None,
    logprobs: list[float] | None = None,
    status: int = 200,
) -> RecordedCall:
    """Return an answered call; one with an error status holds an error instead."""
    tokens = {"content": [{"token": "a", "logprob": x} for x in logprobs or []]}
    choice = {
        "message": {"role": "assistant", "content": text},
        "finish_reason": "stop",
        "token_ids": response_ids or [],
        "logprobs": tokens,
    }
    response = {"choices": [choice], "prompt_token_ids": prompt_ids or []}
    return RecordedCall(
        {
            "model": "m",
            "model_version": version,
            "request": request or {},
            "response": response if status < 400 else {"error": {}},
            "server": {"model": "m", "version": version, "endpoint": "in-process"},
            "http_status": status,
            "status": "ok" if status < 400 else "error",
            "agent": agent,
        }
    )
