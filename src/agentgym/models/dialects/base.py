"""The interface of a dialect, and server-sent events."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import orjson

from agentgym.core.openai import ApiError

IS_ERROR = "is_error"
"""Key of a tool's message that says whether the call failed; no model is sent it."""


def frame(chunk: Mapping[str, Any], event: str = "") -> bytes:
    """Return an object as one server-sent event, with its name if it has one."""
    head = f"event: {event}\n".encode() if event else b""
    return head + b"data: " + orjson.dumps(chunk) + b"\n\n"


class Dialect(ABC):
    """Converts requests to chat completions, and completions to answers.

    Attributes:
        path: Of its endpoint, below the base URL of its clients.
    """

    path: ClassVar[str]

    @abstractmethod
    def read(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the request as a chat completion's, not streamed.

        Messages that the model wrote become the messages that it wrote, so that the
        exact tokens of one call are the beginning of the next call's prompt.

        Raises:
            ApiError: It asks for something that chat completions cannot do.
        """

    @abstractmethod
    def answer(
        self, completion: dict[str, Any], body: Mapping[str, Any]
    ) -> dict[str, Any]:
        """Return the answer to the request ``body``, from a chat completion."""

    @abstractmethod
    def stream(self, completion: dict[str, Any], body: Mapping[str, Any]) -> bytes:
        """Return the same answer as all events of a stream."""

    def error(self, error: ApiError) -> dict[str, Any]:
        """Return the body of an error."""
        return error.body
