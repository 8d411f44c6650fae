"""LoopWatch: says which line blocks the event loop that all rollouts share."""

import asyncio
import logging
import sys
import threading
import traceback
from typing import Self

logger = logging.getLogger(__name__)

_FRAMES = 4


class LoopWatch:
    """Logs an error when the running event loop has stood still for too long.

    Nothing can end what blocks it, so that people have to be told where it is.

    Args:
        limit_s: Seconds that the loop may stand still.
    """

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
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
                logger.error(
                    "The event loop has stood still for %g s. No timeout can end that, "
                    "and all other rollouts wait: await there, or call it in "
                    "asyncio.to_thread(). It is here, innermost last:\n%s",
                    self._limit_s,
                    self._place(),
                )
                while not turned.wait(1.0) and not self._over.is_set():
                    pass
            self._over.wait(self._limit_s)

    def _place(self) -> str:
        frame = sys._current_frames().get(self._watched)
        return "".join(traceback.format_stack(frame, limit=_FRAMES)) if frame else "?"
