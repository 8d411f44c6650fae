"""Dialect: the interface of a converter between a chat API and chat completions."""

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import Any, ClassVar

import orjson

from agentgym.core.openai import ApiError
from agentgym.security.redaction import quoted

IS_ERROR = "is_error"
"""Key in a tool message that marks a failed call; the key is not sent to the model."""


def frame(chunk: Mapping[str, Any], event: str = "") -> bytes:
    """Format an object as a server-sent event; ``event`` is its name, if it has one."""
    head = f"event: {event}\n".encode() if event else b""
    return head + b"data: " + orjson.dumps(chunk) + b"\n\n"


def refused(message: str) -> ApiError:
    """Return the error for a request that cannot be converted."""
    return ApiError(400, f"{message}.", "unsupported_parameter")


def text_of(content: Any, where: str, kinds: Collection[str] = ("text",)) -> str:
    """Return a text or a list of parts with text as one text; refuse other parts."""
    if isinstance(content, str):
        return content
    texts = []
    for part in content if isinstance(content, list) else [content]:
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind not in kinds:
            raise refused(f"{where} is of type {quoted(kind)}, not a text")
        texts.append(str(part.get("text", "")))
    return "".join(texts)


class Dialect(ABC):
    """Converts between one chat API and chat completions; ``path`` is its endpoint."""

    path: ClassVar[str]

    @abstractmethod
    def read(self, body: dict[str, Any]) -> dict[str, Any]:
        """Convert a request of this API to a chat-completion request without streaming.

        Earlier messages of the model are restored exactly, so that the tokens of one
        call are the start of the next call's prompt.

        Raises:
            ApiError: The request uses a feature that cannot be converted.
        """

    @abstractmethod
    def answer(
        self, completion: dict[str, Any], body: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Convert a chat completion to an answer of this API.

        ``body`` is the request of this API that is answered.
        """

    @abstractmethod
    def stream(self, completion: dict[str, Any], body: Mapping[str, Any]) -> bytes:
        """Convert a chat completion to this API's answer as server-sent events."""

    def error(self, error: ApiError) -> dict[str, Any]:
        """Return the response body for an error, in this API's format."""
        return error.body
