"""Signals: wait for a change, from threads and from event loops."""

import asyncio
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

Key = tuple[str, ...]

QUEUE: Key = ("queue",)  # rollouts were queued
ANY: Key = ("any",)  # a rollout changed its state
KEPT: Key = ("kept",)  # data has reached the disk


def terminal(rollout_id: str) -> Key:
    """Return the key that is notified when a rollout ends."""
    return ("terminal", rollout_id)


class Signals:
    """Calls the listeners of a key when the key is notified. Thread-safe.

    A key names a kind of change, e.g. the end of one rollout. A listener is a function
    without arguments.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._callbacks: dict[Key, list[Callable[[], object]]] = defaultdict(list)

    def notify(self, *keys: Key) -> None:
        """Call the listeners of each of ``keys``."""
        with self._lock:
            found = [c for key in keys for c in self._callbacks.get(key, ())]
        for callback in found:
            callback()

    def notify_all(self) -> None:
        """Call the listeners of all keys."""
        with self._lock:
            keys = list(self._callbacks)
        self.notify(*keys)

    @contextmanager
    def listening(
        self, keys: Iterable[Key], callback: Callable[[], object]
    ) -> Iterator[None]:
        """Call ``callback`` when a key is notified inside the block, in any thread."""
        heard = list(keys)
        with self._lock:
            for key in heard:
                self._callbacks[key].append(callback)
        try:
            yield
        finally:
            with self._lock:
                for key in heard:
                    self._callbacks[key].remove(callback)
                    if not self._callbacks[key]:
                        del self._callbacks[key]

    async def wait_async[T](
        self, key: Key, ready: Callable[[], T], timeout: float
    ) -> T:
        """Wait until ``ready()`` is truthy or a timeout; return its last result."""
        loop = asyncio.get_running_loop()
        changed = asyncio.Event()
        with self.listening([key], lambda: loop.call_soon_threadsafe(changed.set)):
            try:
                async with asyncio.timeout(timeout):
                    while not (value := ready()):
                        await changed.wait()
                        changed.clear()
                    return value
            except TimeoutError:
                return ready()
