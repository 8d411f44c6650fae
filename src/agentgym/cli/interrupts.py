"""End a command on Ctrl-C, SIGTERM and SIGHUP, even if something hangs."""

import os
import signal
import sys
import threading
from contextlib import suppress
from types import FrameType
from typing import Any, Self

INTERRUPTED = 128 + signal.SIGINT

_LIKE_CTRL_C = (signal.SIGTERM, signal.SIGHUP)
"""Signals to handle like Ctrl-C: SIGTERM comes from service managers, SIGHUP from a
terminal that is closed."""
_AFTER_S = 2.5
_SHOW_CURSOR = "\x1b[?25h"
_MESSAGE = "Interrupted. `agentgym runs list` lists the runs that can continue.\n"


class Interrupts:
    """Makes SIGTERM and SIGHUP act like Ctrl-C inside the block.

    A signal that is ignored, as with ``nohup``, stays ignored. If ``hard`` is true, the
    process is killed some seconds after a signal, even if a thread hangs in a system
    call or a library catches the exception. Only the ``agentgym`` program needs this.
    """

    def __init__(self, *, hard: bool) -> None:
        self._hard = hard
        self._code = INTERRUPTED
        self._old: dict[int, Any] = {}
        self._timer: threading.Timer | None = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            if self._hard and signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
                self._old[signal.SIGINT] = signal.signal(signal.SIGINT, self._interrupt)
            for number in _LIKE_CTRL_C:
                if signal.getsignal(number) == signal.SIG_DFL:
                    self._old[number] = signal.signal(number, self._terminate)
        return self

    def __exit__(self, *_: object) -> None:
        """Restore the signal handlers; do not cancel a pending kill of the process."""
        for number, handler in self._old.items():
            signal.signal(number, handler)

    def exit_code(self, code: int) -> int:
        """Return the process's exit code, given the exit ``code`` of the command.

        If a signal ended the command, the exit code is 128 + the signal's number.
        """
        if code == INTERRUPTED:
            self._arm()  # the interpreter's exit may hang too
        return self._code if code and self._code != INTERRUPTED else code

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        self._arm()
        raise KeyboardInterrupt

    def _terminate(self, number: int, frame: FrameType | None) -> None:
        self._code = 128 + number
        handler = signal.getsignal(signal.SIGINT)
        if callable(handler):
            handler(signal.SIGINT, frame)
        else:  # Ctrl-C is ignored, as in a script's background job
            self._interrupt(number, frame)

    def _arm(self) -> None:
        if self._hard and self._timer is None:
            self._timer = threading.Timer(_AFTER_S, self._end)
            self._timer.daemon = True
            self._timer.start()

    def _end(self) -> None:
        message = (_SHOW_CURSOR if sys.stderr.isatty() else "") + _MESSAGE
        with suppress(OSError):  # the terminal may be gone
            os.write(sys.stderr.fileno(), message.encode())
        os._exit(self._code)
