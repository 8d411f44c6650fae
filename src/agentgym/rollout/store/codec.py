"""How events become rows: a model call holds only what the one before it did not.

An agent sends its whole conversation with every call. A row therefore holds how
many messages and prompt ids the call shares with the same agent's previous call,
and the rest: JSON in one column, ids and log-probabilities packed in another.
"""

from array import array
from itertools import takewhile
from typing import Any

import orjson

from agentgym.rollout.store.calls import RecordedCall

Packed = tuple[bytes, bytes | None, bytes | None]
"""The columns ``data``, ``tokens`` and ``routes``."""

_PLAIN = (
    "agent",
    "model",
    "endpoint",
    "model_version",
    "response",
    "ids_in_choice",
    "latency_ms",
    "http_status",
    "retry_count",
)
_CONVERSATION = ("messages", "tools")


def pack_call(call: RecordedCall, previous: RecordedCall | None) -> Packed:
    """Return the columns of a model call.

    Args:
        call: What to store.
        previous: The same agent's call before it in the attempt.
    """
    header: dict[str, Any] = {name: getattr(call, name) for name in _PLAIN}
    request = dict(call.request)
    before: dict[str, Any] = previous.request if previous is not None else {}
    for name in _CONVERSATION:
        if name in request:
            shared = _shared(before.get(name), request[name])
            header[f"{name}_shared"] = shared
            request[name] = request[name][shared:] if shared else request[name]
    header["request"] = request
    shared = _shared(previous.prompt_ids if previous else None, call.prompt_ids)
    prompt, response = _ids(call.prompt_ids[shared:]), _ids(call.response_ids)
    logprobs = _floats(call.logprobs)
    header["prompt_shared"] = shared
    header["tokens"] = [
        (part.typecode, len(part)) for part in (prompt, response, logprobs)
    ]
    header["has_logprobs"] = call.logprobs is not None
    tokens = b"".join((prompt.tobytes(), response.tobytes(), logprobs.tobytes()))
    routes = None if call.routed_experts is None else pack_json(call.routed_experts)
    return pack_json(header), tokens, routes


def unpack_call(packed: Packed, previous: RecordedCall | None) -> RecordedCall:
    """Return the model call that :func:`pack_call` stored."""
    data, tokens, routes = packed
    header = orjson.loads(data)
    request = header["request"]
    for name in _CONVERSATION:
        shared = header.get(f"{name}_shared")
        if shared and previous is not None:
            request[name] = [*previous.request[name][:shared], *request[name]]
    parts = _split(tokens or b"", header["tokens"])
    prompt_ids = parts[0].tolist()
    if previous is not None:
        prompt_ids = previous.prompt_ids[: header["prompt_shared"]] + prompt_ids
    return RecordedCall(
        **{name: header[name] for name in _PLAIN},
        request=request,
        prompt_ids=prompt_ids,
        response_ids=parts[1].tolist(),
        logprobs=parts[2].tolist() if header["has_logprobs"] else None,
        routed_experts=None if routes is None else orjson.loads(routes),
    )


def pack_json(value: Any) -> bytes:
    """Return ``value`` as JSON."""
    return orjson.dumps(value)


def _shared(before: Any, now: Any) -> int:
    """Return how many leading items two lists have in common."""
    if not isinstance(before, list) or not isinstance(now, list):
        return 0
    if now[: len(before)] == before:  # compares in C; the usual case
        return len(before)
    pairs = zip(before, now, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _ids(ids: list[int]) -> "array[int]":
    """Pack token ids into two bytes each if they fit, else into four."""
    try:
        return array("H", ids)
    except OverflowError:
        return array("I", ids)


def _floats(values: list[float] | None) -> "array[float]":
    """Pack floats into four bytes each if that loses nothing, else into eight."""
    single = array("f", values or [])
    return single if single.tolist() == (values or []) else array("d", values or [])


def _split(packed: bytes, lengths: list[tuple[str, int]]) -> list["array[Any]"]:
    parts, start = [], 0
    for code, length in lengths:
        part: array[Any] = array(code)
        end = start + part.itemsize * length
        part.frombytes(packed[start:end])
        parts.append(part)
        start = end
    return parts
