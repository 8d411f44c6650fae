"""Control channel: what a worker process tells the pool that started it."""

import json
import os
from typing import Any


class ControlChannel:
    """The worker's end of the pipe that was its standard output.

    From then on standard output goes where standard error goes, so that nothing that
    an agent, a tool or a reward prints can be taken for a message.
    """

    def __init__(self) -> None:
        self._pipe = os.fdopen(os.dup(1), "wb")
        os.dup2(2, 1)

    def say(self, **message: Any) -> None:
        """Send one message. Any thread."""
        self._pipe.write(json.dumps(message).encode() + b"\n")
        self._pipe.flush()


def read_message(line: bytes) -> dict[str, Any]:
    """Return the message of a line; an empty one if the line holds none."""
    try:
        message = json.loads(line)
    except ValueError:
        return {}
    return message if isinstance(message, dict) else {}
