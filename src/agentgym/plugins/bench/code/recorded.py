"""Convert Python values to JSON and back, and keep their types.

The source of this module is also copied into the sandbox.
"""

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
