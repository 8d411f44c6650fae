"""Convert model calls to compact JSON and back, to send them to a worker."""

from collections.abc import Iterable, Sequence
from itertools import takewhile
from operator import eq
from typing import Any

from agentgym.core.trajectory import ModelCall, RequestedCall
from agentgym.rollout.store.events import RecordedCall


def pack_calls(calls: Iterable[RecordedCall]) -> list[dict[str, Any]]:
    """Convert model calls to JSON for :func:`unpack_calls`, without token ids.

    Messages that repeat those of the agent's previous call are left out; ``repeats`` is
    their number. The field ``tools`` is left out if it is the same as in that call.
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
    """Rebuild the model calls from the output of :func:`pack_calls`."""
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
