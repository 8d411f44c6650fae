"""The content of a message: one text, or a list of parts that together are one."""

from typing import Any


def joined_text(parts: list[Any]) -> str:
    """Return the text of a message whose content comes in parts.

    Args:
        parts: OpenAI-shaped parts (``{"type": "text", "text": ...}``) or strings.

    Raises:
        ValueError: A part is no text; the message says of which type it is.
    """
    return "".join(map(_text, parts))


def _text(part: Any) -> str:
    if isinstance(part, str):
        return part
    if not isinstance(part, dict):
        raise ValueError(f"a part is no object but {type(part).__name__}")
    if part.get("type") != "text" or not isinstance(part.get("text"), str):
        raise ValueError(f"a part of type {part.get('type')!r} holds no text")
    text: str = part["text"]
    return text
