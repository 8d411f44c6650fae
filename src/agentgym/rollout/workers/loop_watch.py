"""LoopWatch: detect that the event loop that all rollouts share is blocked."""

import asyncio
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Self

from agentgym.security.redaction import get_logger

logger = get_logger(__name__)

_FRAMES = 4


class LoopWatch:
    """Watches, from a thread, whether the running event loop is blocked.

    ``blocked`` is called each time the loop was blocked for ``limit_s`` seconds. By
    default, the position of the blocking call in the code is logged, since the call
    cannot be ended. ``turned`` is called after each check. A check is made every
    ``every_s`` seconds, by default every ``limit_s``.
    """

    def __init__(
        self,
        limit_s: float,
        *,
        blocked: Callable[[], None] | None = None,
        turned: Callable[[], None] | None = None,
        every_s: float | None = None,
    ) -> None:
        self._limit_s = limit_s
        self._every_s = limit_s if every_s is None else every_s
        self._blocked = blocked or self._log
        self._turned = turned
        self._loop = asyncio.get_running_loop()
        self._watched = threading.get_ident()
        self._over = threading.Event()
        self._thread = threading.Thread(
            target=self._watch, name="agentgym-loop-watch", daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()

    def _watch(self) -> None:
        while not self._over.is_set():
            turned = threading.Event()
            self._loop.call_soon_threadsafe(turned.set)
            if not turned.wait(self._limit_s) and not self._over.is_set():
                self._blocked()
                while not turned.wait(1.0) and not self._over.is_set():
                    pass
            if self._turned is not None:
                self._turned()
            self._over.wait(self._every_s)

    def _log(self) -> None:
        frame = sys._current_frames().get(self._watched)
        place = traceback.format_stack(frame, limit=_FRAMES) if frame else ["?"]
        logger.error(
            "The event loop has stood still for %g s. No timeout can end that, "
            "and all other rollouts wait: await the call, or make it in "
            "asyncio.to_thread(). The blocking call, innermost last:\n%s",
            self._limit_s,
            "".join(place),
        )
