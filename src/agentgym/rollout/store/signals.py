"""Signals: waiting for something to change, from threads and from event loops."""

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import Callable

QUEUE = "queue"
"""Rollouts were queued."""
ANY = "any"
"""A rollout changed its state."""


def terminal(rollout_id: str) -> str:
    """Return the key of a rollout's end."""
    return f"terminal:{rollout_id}"


class Signals:
    """Callbacks by key, each called once. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._callbacks: dict[str, list[Callable[[], None]]] = defaultdict(list)

    def subscribe(self, key: str, callback: Callable[[], None]) -> None:
        """Call ``callback`` once, from any thread, when ``key`` is next notified."""
        with self._lock:
            self._callbacks[key].append(callback)

    def unsubscribe(self, key: str, callback: Callable[[], None]) -> None:
        """Take ``callback`` back if it was not called yet."""
        with self._lock:
            waiting = self._callbacks.get(key, [])
            if callback in waiting:
                waiting.remove(callback)
            if not waiting:
                self._callbacks.pop(key, None)

    def notify(self, *keys: str) -> None:
        """Call and forget what is subscribed to ``keys``."""
        with self._lock:
            found = [c for key in keys for c in self._callbacks.pop(key, ())]
        for callback in found:
            callback()

    def wait[T](self, key: str, ready: Callable[[], T], timeout: float | None) -> T:
        """Block until ``ready()`` is truthy or time is up; return its last value."""
        deadline = None if timeout is None else time.monotonic() + timeout
        changed = threading.Event()
        while True:
            changed.clear()
            self.subscribe(key, changed.set)
            try:
                value = ready()
                left = None if deadline is None else deadline - time.monotonic()
                if value or (left is not None and left <= 0):
                    return value
                changed.wait(left)
            finally:
                self.unsubscribe(key, changed.set)

    async def wait_async[T](
        self, key: str, ready: Callable[[], T], timeout: float
    ) -> T:
        """Like :meth:`wait`, without blocking the running event loop."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        changed = asyncio.Event()

        def wake() -> None:
            loop.call_soon_threadsafe(changed.set)

        while True:
            changed.clear()
            self.subscribe(key, wake)
            try:
                value = ready()
                left = deadline - loop.time()
                if value or left <= 0:
                    return value
                async with asyncio.timeout(left):
                    await changed.wait()
            except TimeoutError:
                return ready()
            finally:
                self.unsubscribe(key, wake)
