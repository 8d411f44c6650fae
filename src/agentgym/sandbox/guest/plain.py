"""Convert plain values to texts: equal texts mean equal values of equal types.

The sandbox and the host both use this file. Only the texts leave the sandbox. So the
host never creates an object of the tested program, and never calls its ``__eq__``.
"""

MOST_CHARACTERS = 200  # maximum length of a text. Texts are ASCII only.
_SHOWN = 60
_DEEPEST = 50
_MOST_BITS = 4096


def plain_text(value: object) -> str:
    """Return the text of a value. A long text is replaced by its start and a hash."""
    text = _text(value, 0)
    if len(text) <= MOST_CHARACTERS:
        return text
    import hashlib  # Imported only if needed, since the import is slow.

    return f"{text[:_SHOWN]}... sha256 {hashlib.sha256(text.encode()).hexdigest()}"


def _text(value: object, depth: int) -> str:
    kind = type(value)
    if depth > _DEEPEST:
        raise TypeError(f"it is nested deeper than {_DEEPEST}")
    if isinstance(value, int) and kind is int:
        return repr(value) if value.bit_length() < _MOST_BITS else hex(value)
    if isinstance(value, float) and kind is float:
        return repr(value + 0.0)  # -0.0 becomes 0.0.
    if kind in (str, bytes, bool, type(None)):
        return ascii(value)
    if isinstance(value, dict) and kind is dict:
        texts = [
            f"{_text(key, depth + 1)}: {_text(item, depth + 1)}"
            for key, item in value.items()
        ]
        return f"{{{', '.join(sorted(texts))}}}"
    if isinstance(value, list | tuple | set | frozenset) and kind in _NAMES:
        texts = [_text(item, depth + 1) for item in value]
        ordered = kind in (list, tuple)
        return f"{_NAMES[kind]}({', '.join(texts if ordered else sorted(texts))})"
    raise TypeError(f"it holds a {kind.__name__}, which is not a plain value")


_NAMES = {kind: kind.__name__ for kind in (list, tuple, set, frozenset)}
