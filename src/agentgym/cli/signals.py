"""SIGTERM: it ends a command as Ctrl-C does, with an exit code of its own."""

import signal
import threading
from types import FrameType
from typing import Self

INTERRUPTED = 128 + signal.SIGINT
TERMINATED = 128 + signal.SIGTERM


class Termination:
    """While entered, SIGTERM does what Ctrl-C would do at that moment."""

    def __init__(self) -> None:
        self._has_come = self._is_ours = False

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._is_ours = signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
        if self._is_ours:
            signal.signal(signal.SIGTERM, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_ours:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)

    def exit_code(self, code: int) -> int:
        """Return what a command exits with that would exit with ``code``."""
        return TERMINATED if code and self._has_come else code

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._has_come = True
        handler = signal.getsignal(signal.SIGINT)
        if not callable(handler):  # Ctrl-C is ignored, as in a job of a script
            raise KeyboardInterrupt
        handler(signal.SIGINT, frame)
