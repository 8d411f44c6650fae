"""Notify threads and event loops of changes in the store, e.g. a rollout's end."""

import asyncio
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from queue import Empty, SimpleQueue
from typing import Self

Key = tuple[str, ...]

QUEUE: Key = ("queue",)  # rollouts were queued
ANY: Key = ("any",)  # a rollout changed its state
KEPT: Key = ("kept",)  # data has reached the disk


def terminal(rollout_id: str) -> Key:
    """Return the key that stands for the end of a rollout."""
    return ("terminal", rollout_id)


class Signals:
    """Calls the listeners of a key when the key is notified. Thread-safe.

    A key names a kind of change, e.g. the end of one rollout. A listener is a function
    without arguments. It is called in the thread that notifies the key.
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
        """Call ``callback`` for each notification of a key inside the block."""
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
        """Wait up to ``timeout`` s for ``ready()``; return its last result."""
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


class Ends:
    """Reports which rollouts have ended; each end is reported once.

    ``left`` has the ids of the rollouts whose end was not reported yet. ``has_ended``
    returns whether a rollout has ended; if it raises an error, :meth:`wait` raises it,
    too.
    """

    def __init__(self, ids: Collection[str], has_ended: Callable[[str], bool]) -> None:
        self.left = set(ids)
        self._has_ended = has_ended
        self._heard: SimpleQueue[str] = SimpleQueue()

    @classmethod
    @contextmanager
    def listening(
        cls, signals: Signals, ids: Collection[str], has_ended: Callable[[str], bool]
    ) -> Iterator[Self]:
        """Yield an Ends that also reports rollouts that ended before the block."""
        ends = cls(ids, has_ended)
        with ExitStack() as stack:
            for rollout_id in ends.left:
                heard = partial(ends._heard.put, rollout_id)
                key = terminal(rollout_id)
                stack.enter_context(signals.listening([key], heard))
            for rollout_id in filter(has_ended, list(ends.left)):
                ends._heard.put(rollout_id)
            yield ends

    def wait(self, timeout: float) -> set[str]:
        """Block until a rollout ends, at most ``timeout`` seconds."""
        until = time.monotonic() + timeout
        while self.left:
            heard = set()
            left = min(max(until - time.monotonic(), 0), threading.TIMEOUT_MAX)
            try:
                heard.add(self._heard.get(timeout=left))
                while True:
                    heard.add(self._heard.get_nowait())
            except Empty:
                pass
            if found := set(filter(self._has_ended, heard & self.left)):
                self.left -= found
                return found
            if not heard and time.monotonic() >= until:
                break
        return set()

    def wait_for(self, count: int, timeout: float) -> set[str]:
        """Block until ``count`` rollouts have ended, at most ``timeout`` seconds."""
        until, found = time.monotonic() + timeout, self.wait(0)
        while len(found) < count and (more := self.wait(until - time.monotonic())):
            found |= more
        return found
