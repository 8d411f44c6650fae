"""Run torch work in short-lived threads, and choose the number of kernel threads."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from statistics import median

import torch

_FIRST_TRIAL, _RAREST_TRIAL = 32, 256
"""Least and most decoding steps between two trials of :class:`ThreadTuner`. The number
doubles after each trial that confirms the current choice."""
_TRIED = 5
"""Decoding steps of a trial with each number of threads."""


def in_short_thread[**P, T](
    function: Callable[P, T], *args: P.args, **named: P.kwargs
) -> T:
    """Run a function in a new thread, which then ends; return the function's result.

    OpenMP starts helper threads for each thread that runs torch kernels; they end with
    it. If they stayed, the process would have more helper threads than cores (the
    decoder has its own), and all of them would sleep between kernels.
    """
    with ThreadPoolExecutor(
        1, "agentgym-compute", torch.set_num_threads, (torch.get_num_threads(),)
    ) as pool:
        return pool.submit(function, *args, **named).result()


@contextmanager
def kernel_threads(count: int) -> Iterator[None]:
    """Set the number of threads per torch kernel, within the block and this thread."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class ThreadTuner:
    """Chooses the number of threads per kernel: one or all, whichever is faster.

    The threads of a kernel wait for each other at its end. If other programs use the
    cores, this wait can take longer than computing with one thread: three processes on
    two cores each sampled 4 tokens a second with two threads, but 17 with one. From
    time to time the tuner runs some decoding steps alternately with one thread and with
    all threads (``most``), and keeps the number with the smaller median time.
    """

    def __init__(
        self, most: int, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._most = self.count = most
        self._clock = clock
        self._interval = self._until = _FIRST_TRIAL
        self._seconds: dict[int, list[float]] = {1: [], most: []}

    def run(self, step: Callable[[], None]) -> None:
        """Run a decoding step with the chosen number of threads, or as a trial."""
        self._until -= 1
        if self._most == 1 or self._until >= 0:
            step()
            return
        count = min(self._seconds, key=lambda each: len(self._seconds[each]))
        with kernel_threads(count):
            began = self._clock()
            step()
            self._seconds[count].append(self._clock() - began)
        if all(len(each) == _TRIED for each in self._seconds.values()):
            self._choose()

    def _choose(self) -> None:
        best = min(self._seconds, key=lambda each: median(self._seconds[each]))
        is_same = best == self.count
        longer = min(2 * self._interval, _RAREST_TRIAL)
        self._interval = longer if is_same else _FIRST_TRIAL
        self.count, self._until = best, self._interval
        self._seconds = {1: [], self._most: []}
        torch.set_num_threads(best)
