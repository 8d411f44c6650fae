"""Signals while a machine is rented: an end in order, and no machine left behind."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from agentgym.errors import Interrupted


class Signals:
    """Ctrl-C, SIGTERM and SIGHUP as KeyboardInterrupt, but not at every moment."""

    _NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self._old: dict[int, Any] = {}
        self._came = 0
        self._patience: int | None = None
        self._doing = ""
        self._given_up = ""
        self._is_own = False
        self._outer: Any = None

    @property
    def can_interrupt(self) -> bool:
        """Whether the block runs where signals arrive."""
        return bool(self._old)

    def install(self) -> None:
        """Handle them, where that can be done."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in self._NUMBERS:
            if signal.getsignal(number) != signal.SIG_IGN:
                self._old[number] = signal.signal(number, self._handle)

    def restore(self) -> None:
        """Handle them no more."""
        for number, handler in self._old.items():
            signal.signal(number, handler)
        self._old = {}

    def give_on(self) -> None:
        """Let whoever handled SIGTERM before know that it came."""
        outer, self._outer = self._outer, None
        if callable(outer):
            outer(signal.SIGTERM, None)

    def interrupt(self) -> None:
        """Interrupt the block, also where it would take Ctrl-C for a request."""
        main = threading.main_thread().ident
        number = signal.SIGTERM if signal.SIGTERM in self._old else signal.SIGINT
        if main is not None and number in self._old:
            self._is_own = True
            signal.pthread_kill(main, number)

    @contextmanager
    def deferred(
        self, doing: str, given_up: str = "", patience: int | None = None
    ) -> Iterator[None]:
        """Let signals wait for the end of the block, and interrupt there.

        With ``patience`` they do not, but so many of them end the block.

        Args:
            doing: What they wait for, in words.
            given_up: What to tell where it is not waited for.
            patience: How many do not wait.

        Raises:
            Interrupted: So many came.
        """
        self._doing, self._given_up = doing, given_up
        self._patience, self._came = patience, 0
        try:
            yield
        finally:
            self._doing = ""
        if self._came and patience is None:
            raise KeyboardInterrupt

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self._came += 1
        if number == signal.SIGTERM and not self._is_own:
            self._outer = self._old.get(number)
        self._is_own = False
        if not self._doing:
            raise KeyboardInterrupt
        told = f"Interrupted. {self._doing}"
        if self._patience is not None:
            if self._came >= self._patience:
                raise Interrupted(self._given_up)
            told += f"; {self._patience - self._came} more to give that up"
        with suppress(OSError):  # the terminal may be gone
            os.write(2, f"{told}.\n".encode())
