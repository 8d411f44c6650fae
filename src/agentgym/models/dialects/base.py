"""Dialect: the interface of an API converter; and server-sent events."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import orjson

from agentgym.core.openai import ApiError

IS_ERROR = "is_error"
"""Key of a tool message that marks a failed call; it is never sent to a model."""


def frame(chunk: Mapping[str, Any], event: str = "") -> bytes:
    """Return an object as one server-sent event, with an optional name."""
    head = f"event: {event}\n".encode() if event else b""
    return head + b"data: " + orjson.dumps(chunk) + b"\n\n"


class Dialect(ABC):
    """Converts requests to chat completions, and completions to the API's answers.

    Attributes:
        path: Path of its endpoint, below the clients' base URL.
    """

    path: ClassVar[str]

    @abstractmethod
    def read(self, body: dict[str, Any]) -> dict[str, Any]:
        """Convert a request to that of a chat completion, not streamed.

        Earlier messages of the model are restored exactly, so that the tokens of one
        call are the start of the next call's prompt.

        Raises:
            ApiError: It uses a feature that chat completions do not have.
        """

    @abstractmethod
    def answer(
        self, completion: dict[str, Any], body: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Convert a chat completion to the answer to the request ``body``."""

    @abstractmethod
    def stream(self, completion: dict[str, Any], body: Mapping[str, Any]) -> bytes:
        """Convert a chat completion to a streamed answer; return all its events."""

    def error(self, error: ApiError) -> dict[str, Any]:
        """Return the body of an error."""
        return error.body
