"""Threads that compute."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import torch


def in_short_thread[**P, T](
    function: Callable[P, T], *args: P.args, **named: P.kwargs
) -> T:
    """Call a function that computes with torch in a thread that ends with it.

    Its OpenMP threads end with it too. If they stayed next to the decoder's, there
    would be more of them than cores, and then all of them sleep between kernels.
    """
    with ThreadPoolExecutor(
        1, "agentgym-compute", torch.set_num_threads, (torch.get_num_threads(),)
    ) as pool:
        return pool.submit(function, *args, **named).result()


@contextmanager
def kernel_threads(count: int) -> Iterator[None]:
    """Let torch's kernels have so many threads in this thread within the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
