"""Wake the asyncio tasks that wait for a change in the store."""

import asyncio
import threading
from collections.abc import Callable


class Changes:
    """Wakes tasks in any event loop. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._wakers: set[Callable[[], object]] = set()

    def notify(self) -> None:
        """Wake all waiting tasks, which then check their condition again."""
        with self._lock:
            wakers = tuple(self._wakers)
        for wake in wakers:
            wake()

    async def wait[T](self, ready: Callable[[], T], timeout: float) -> T:
        """Wait up to ``timeout`` s for ``ready()``; return its last result."""
        loop = asyncio.get_running_loop()
        changed = asyncio.Event()

        def wake() -> None:
            loop.call_soon_threadsafe(changed.set)

        with self._lock:
            self._wakers.add(wake)
        try:
            async with asyncio.timeout(timeout):
                while not (value := ready()):
                    await changed.wait()
                    changed.clear()
                return value
        except TimeoutError:
            return ready()
        finally:
            with self._lock:
                self._wakers.discard(wake)
