"""OpenAI's shapes: errors as its clients read them, and messages in parts."""

from dataclasses import dataclass, field
from typing import Any

from agentgym.errors import RolloutError

DEFAULT_AGENT = "agent"
"""Who speaks where no team has named its agents."""


@dataclass(eq=False)
class ApiError(RolloutError):
    """An error that the gateway answers with, in OpenAI's shape.

    Attributes:
        status: HTTP status.
        message: For people.
        code: For programs, e.g. ``context_length_exceeded``.
        kind: OpenAI's ``type``.
        headers: Extra response headers.
    """

    status: int
    message: str
    code: str
    kind: str = "invalid_request_error"
    headers: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__init__(self.message)

    @property
    def body(self) -> dict[str, Any]:
        """The response's body; ``detail`` is where Agent Lightning's clients look."""
        error = {
            "message": self.message,
            "type": self.kind,
            "param": None,
            "code": self.code,
        }
        return {"error": error, "detail": self.message}


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
