"""Pack model calls for a reward in another process, without token ids."""

from collections.abc import Iterable, Sequence
from itertools import takewhile
from operator import eq
from typing import Any

from agentgym.core.trajectory import ModelCall, RequestedCall
from agentgym.rollout.store.events import RecordedCall


def pack_calls(calls: Iterable[RecordedCall]) -> list[dict[str, Any]]:
    """Convert model calls to JSON for :func:`unpack_calls`, without token ids.

    Requests repeat earlier messages and tools; these are sent once. ``repeats`` is the
    number of messages that a call shares with the agent's previous one; ``tools`` is
    missing if they are the same.
    """
    packed: list[dict[str, Any]] = []
    last: dict[str, tuple[list[Any], Any]] = {}
    for recorded in calls:
        call = recorded.to_view()
        messages, tools = call["messages"], call["tools"]
        before, known = last.get(call["agent"], ([], None))
        shared = map(eq, messages, before)
        call["repeats"] = repeats = sum(takewhile(bool, shared))
        call["messages"] = messages[repeats:]
        if tools == known:
            del call["tools"]
        last[call["agent"]] = messages, tools
        packed.append(call)
    return packed


def unpack_calls(packed: Sequence[dict[str, Any]]) -> list[ModelCall]:
    """Return the model calls from the output of :func:`pack_calls`."""
    calls: list[ModelCall] = []
    last: dict[str, ModelCall] = {}
    for given in packed:
        fields = dict(given)
        before = last.get(fields["agent"])
        if repeats := fields.pop("repeats"):
            assert before is not None
            fields["messages"] = before.messages[:repeats] + fields["messages"]
        if "tools" not in fields:
            assert before is not None
            fields["tools"] = before.tools
        fields["tool_calls"] = [
            RequestedCall.model_construct(**call) for call in fields["tool_calls"]
        ]
        call = last[fields["agent"]] = ModelCall.without_tokens(**fields)
        calls.append(call)
    return calls
