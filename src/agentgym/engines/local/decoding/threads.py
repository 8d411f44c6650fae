"""Run torch work in short-lived threads, and limit kernels' threads."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import torch


def in_short_thread[**P, T](
    function: Callable[P, T], *args: P.args, **named: P.kwargs
) -> T:
    """Run a function that computes with torch in a thread that ends with it.

    Its OpenMP threads end too. If they stayed next to the decoder's threads, there
    would be more than cores, and all would sleep between kernels.
    """
    with ThreadPoolExecutor(
        1, "agentgym-compute", torch.set_num_threads, (torch.get_num_threads(),)
    ) as pool:
        return pool.submit(function, *args, **named).result()


@contextmanager
def kernel_threads(count: int) -> Iterator[None]:
    """Set the number of threads for torch's kernels in this thread within the block."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
