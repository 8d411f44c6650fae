"""Handle Ctrl-C and other signals that end a run's process."""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any, Self

from agentgym.errors import Interrupted

_INSISTS_AFTER_S = 1.5


class InterruptFlag:
    """Sets a flag at the first Ctrl-C or SIGTERM; raises KeyboardInterrupt at a second.

    Works within its ``with`` block. If the block has not ended 1.5 seconds after the
    first signal, KeyboardInterrupt is raised too; a call of :meth:`wait` that returns
    the signal prevents this. An existing handler of SIGTERM is kept.
    """

    def __init__(self) -> None:
        self.requested = False
        self._came: SimpleQueue[None] = SimpleQueue()  # signal handlers may call put
        self._old: dict[int, Any] = {}
        self._patience: threading.Timer | None = None

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():
            self._old[signal.SIGINT] = signal.signal(signal.SIGINT, self._handle)
            if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
                self._old[signal.SIGTERM] = signal.signal(signal.SIGTERM, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        if self._patience is not None:
            self._patience.cancel()
        for number, handler in self._old.items():
            signal.signal(number, handler)

    def wait(self, timeout_s: float | None = None) -> bool:
        """Wait for a signal; return whether one has come before the timeout."""
        try:
            self._came.get(timeout=timeout_s)
        except Empty:
            return False
        if self._patience is not None:
            self._patience.cancel()
        return True

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.requested:
            if callable(outer := self._old[signal.SIGINT]):
                outer(number, frame)
            raise KeyboardInterrupt
        self.requested = True
        self._came.put(None)
        main = threading.main_thread().ident
        assert main is not None
        self._patience = threading.Timer(
            _INSISTS_AFTER_S, signal.pthread_kill, (main, signal.SIGINT)
        )
        self._patience.daemon = True
        self._patience.start()


@contextmanager
def keyboard_interrupts() -> Iterator[None]:
    """Make Ctrl-C raise KeyboardInterrupt at once, while a user is asked."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    old = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, old)


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
