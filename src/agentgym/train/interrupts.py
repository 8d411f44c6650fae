"""Handle Ctrl-C and other signals that end a run's process."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from types import FrameType
from typing import Any, Self

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
