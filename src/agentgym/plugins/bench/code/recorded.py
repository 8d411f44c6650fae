"""Record the results of calls in the sandbox, as JSON that keeps Python's types.

The source of this module is also copied into the sandbox.
"""

import json
import os
import signal
import time
from collections.abc import Callable, Iterable
from typing import Any

_DEEPEST = 60


def packed(value: object, depth: int = 0) -> Any:
    """Convert a value to JSON that keeps the types of Python, or to an unequal mark."""
    if depth > _DEEPEST:
        return ["other"]
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, dict):
        pairs = [
            [packed(key, depth + 1), packed(item, depth + 1)]
            for key, item in value.items()
        ]
        return ["dict", pairs]
    for name, kind in _KINDS.items():
        if isinstance(value, kind):
            return [name, [packed(item, depth + 1) for item in value]]
    for plain in (int, float, str):
        if isinstance(value, plain):
            return plain(value)
    if isinstance(value, complex):
        return ["complex", [value.real, value.imag]]
    if isinstance(value, bytes):
        return ["bytes", value.decode("latin-1")]
    return ["other"]


def unpacked(value: Any) -> Any:
    """Convert the JSON that :func:`packed` returns back to the value."""
    if not isinstance(value, list):
        return value
    name = value[0]
    if name == "other":
        return object()
    items = value[1]
    if name == "bytes":
        return items.encode("latin-1")
    if name == "complex":
        return complex(*items)
    if name == "dict":
        return {unpacked(key): unpacked(item) for key, item in items}
    return _KINDS[name](map(unpacked, items))


_KINDS: dict[str, Any] = {
    "list": list,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
}


def taken(name: str) -> Any:
    """Return the JSON value of a file; delete it, so the judged code cannot read it."""
    with open(name) as file:
        value = json.load(file)
    os.remove(name)
    return value


def record(
    prepare: Callable[[], Callable[[Any], Any]],
    inputs: Iterable[Any],
    limits: Iterable[float],
) -> None:
    """Call the function that ``prepare`` returns with each input.

    Print a line with the packed result and the CPU seconds of each call, and nothing
    that the function prints. ``limits`` are the CPU seconds that each call may take.
    """
    out = os.dup(1)
    os.dup2(2, 1)
    call = prepare()
    signal.signal(signal.SIGVTALRM, _late)
    for given, limit in zip(inputs, limits, strict=True):
        begun = time.process_time()
        signal.setitimer(signal.ITIMER_VIRTUAL, limit)
        result = call(given)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        line = [packed(result), time.process_time() - begun]
        os.write(out, (json.dumps(line) + "\n").encode())


def _late(*_: object) -> None:
    raise TimeoutError
