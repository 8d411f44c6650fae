"""Threads that compute."""

import threading

import torch

from agentgym.engines.local.decoding.threads import in_short_thread, kernel_threads


def test_a_short_thread_computes_with_as_many_threads_and_ends() -> None:
    before = torch.get_num_threads()

    def work(factor: int, *, more: int) -> tuple[int, int, threading.Thread]:
        threads = torch.get_num_threads()
        return factor * more, threads, threading.current_thread()

    product, threads, thread = in_short_thread(work, 2, more=3)

    assert (product, threads) == (6, before)
    assert thread is not threading.current_thread()
    assert not thread.is_alive()


def test_kernels_have_so_many_threads_within_the_block_alone() -> None:
    before = torch.get_num_threads()
    with kernel_threads(before + 1):
        assert torch.get_num_threads() == before + 1
    assert torch.get_num_threads() == before
