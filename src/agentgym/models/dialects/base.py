"""Dialect: the interface of a converter for one API; and server-sent events."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import orjson

from agentgym.core.openai import ApiError

IS_ERROR = "is_error"
"""Key in a tool message that marks a failed call; the key is not sent to the model."""


def frame(chunk: Mapping[str, Any], event: str = "") -> bytes:
    """Return an object as one server-sent event, with the name ``event`` if given."""
    head = f"event: {event}\n".encode() if event else b""
    return head + b"data: " + orjson.dumps(chunk) + b"\n\n"


class Dialect(ABC):
    """Converts an API's requests to chat-completion requests, and answers back.

    Attributes:
        path: Path of the API's endpoint, below the clients' base URL.
    """

    path: ClassVar[str]

    @abstractmethod
    def read(self, body: dict[str, Any]) -> dict[str, Any]:
        """Convert a request to the request of a chat completion, not streamed.

        Earlier messages of the model are restored exactly, so that the tokens of one
        call are the start of the next call's prompt.

        Raises:
            ApiError: The request uses a feature that chat completions do not have.
        """

    @abstractmethod
    def answer(
        self, completion: dict[str, Any], body: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Convert a chat completion to the API's answer to the request ``body``."""

    @abstractmethod
    def stream(self, completion: dict[str, Any], body: Mapping[str, Any]) -> bytes:
        """Convert a chat completion to a streamed answer; return all its events."""

    def error(self, error: ApiError) -> dict[str, Any]:
        """Return the response body for an error, in the API's format."""
        return error.body
