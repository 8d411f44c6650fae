"""DeferredSignals: delay Ctrl-C while a machine is rented or ended."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from agentgym.errors import Interrupted


class DeferredSignals:
    """Raises KeyboardInterrupt for Ctrl-C, SIGTERM and SIGHUP; can delay it."""

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
    def has_come(self) -> bool:
        """Whether a signal came since the last :meth:`deferred` block began."""
        return self._came > 0

    def install(self) -> None:
        """Install the signal handlers; do nothing outside of the main thread."""
        if threading.current_thread() is not threading.main_thread():
            return
        for number in self._NUMBERS:
            if signal.getsignal(number) != signal.SIG_IGN:
                self._old[number] = signal.signal(number, self._handle)

    def restore(self) -> None:
        """Restore the signal handlers from before :meth:`install`."""
        for number, handler in self._old.items():
            signal.signal(number, handler)
        self._old = {}

    def give_on(self) -> None:
        """Call the handler that SIGTERM had before :meth:`install`."""
        outer, self._outer = self._outer, None
        if callable(outer):
            outer(signal.SIGTERM, None)

    def interrupt(self) -> None:
        """Interrupt the main thread from another thread, by SIGTERM if possible."""
        main = threading.main_thread().ident
        number = signal.SIGTERM if signal.SIGTERM in self._old else signal.SIGINT
        if main is not None and number in self._old:
            self._is_own = True
            signal.pthread_kill(main, number)

    @contextmanager
    def deferred(
        self, doing: str, given_up: str = "", patience: int | None = None
    ) -> Iterator[None]:
        """Delay signals until the end of the block.

        When a signal comes, ``doing`` is printed, which describes the work in the
        block. With ``patience``, this many signals interrupt the block itself, with the
        message ``given_up``; fewer signals have no further effect. Without
        ``patience``, the block is never interrupted.
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
        text = f"Interrupted. {self._doing}"
        if self._patience is not None:
            if self._came >= self._patience:
                raise Interrupted(self._given_up)
            text += f"; {self._patience - self._came} more to give that up"
        with suppress(OSError):  # the terminal may be gone
            os.write(2, f"{text}.\n".encode())
