"""Ends: wait for many rollouts to end, without checking all of them each time."""

import threading
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from queue import Empty, SimpleQueue
from typing import Self

from agentgym.rollout.store import signals
from agentgym.rollout.store.signals import Signals


class Ends:
    """Reports the ends of some rollouts, each end once.

    ``has_ended`` returns whether a rollout has ended; it may raise to give up.
    """

    def __init__(self, ids: Collection[str], has_ended: Callable[[str], bool]) -> None:
        self.left = set(ids)
        self._has_ended = has_ended
        self._heard: SimpleQueue[str] = SimpleQueue()

    @classmethod
    @contextmanager
    def listening(
        cls,
        signals_of: Signals,
        ids: Collection[str],
        has_ended: Callable[[str], bool],
    ) -> Iterator[Self]:
        """Listen for ends within the block; ends before the block are reported too."""
        ends = cls(ids, has_ended)
        with ExitStack() as stack:
            for rollout_id in ends.left:
                heard = partial(ends._heard.put, rollout_id)
                key = signals.terminal(rollout_id)
                stack.enter_context(signals_of.listening([key], heard))
            for rollout_id in filter(has_ended, list(ends.left)):
                ends._heard.put(rollout_id)
            yield ends

    def wait(self, timeout: float) -> set[str]:
        """Block until an end or a timeout; return the ids ended since the last call."""
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
        """Block until ``count`` ends or a timeout; return the ended rollouts' ids."""
        until, found = time.monotonic() + timeout, self.wait(0)
        while len(found) < count and (more := self.wait(until - time.monotonic())):
            found |= more
        return found
