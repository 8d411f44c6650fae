"""Ctrl-C that ends a command whatever hangs in it."""

import os
import signal
import sys
import threading
from types import FrameType
from typing import Any, Self

INTERRUPTED = 130
"""Exit code of what Ctrl-C ended."""

_AFTER_S = 2.5
_SHOW_CURSOR = "\x1b[?25h"
_TOLD = "Interrupted. `agentgym runs list` has what can go on.\n"


class HardStop:
    """While entered, Ctrl-C is a KeyboardInterrupt, and seconds later the end.

    A thread that hangs in a system call, or a library that swallows the exception,
    does not keep the process. Only for whoever owns the process.
    """

    def __init__(self) -> None:
        self._old: Any = None
        self._timer: threading.Timer | None = None

    def __enter__(self) -> Self:
        self._old = signal.signal(signal.SIGINT, self)
        return self

    def __exit__(self, *_: object) -> None:
        """Be no handler any more; a stop that is coming comes, unless all ends."""
        signal.signal(signal.SIGINT, self._old)

    def __call__(self, number: int, frame: FrameType | None) -> None:
        """Handle the signal."""
        self.arm()
        raise KeyboardInterrupt

    def arm(self) -> None:
        """End the process in a few seconds."""
        if self._timer is None:
            self._timer = threading.Timer(_AFTER_S, _end)
            self._timer.daemon = True
            self._timer.start()


def _end() -> None:
    told = (_SHOW_CURSOR if sys.stderr.isatty() else "") + _TOLD
    os.write(sys.stderr.fileno(), told.encode())
    os._exit(INTERRUPTED)
