"""Threads that compute."""

import threading
from collections.abc import Iterator

import pytest
import torch

from agentgym.engines.local.decoding.threads import (
    ThreadTuner,
    in_short_thread,
    kernel_threads,
)


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


class Machine:
    """Steps whose seconds depend on how many threads compute them."""

    def __init__(self, seconds: dict[int, float]) -> None:
        self.seconds = seconds
        self.now = 0.0
        self.used: list[int] = []

    def step(self) -> None:
        threads = torch.get_num_threads()
        self.used.append(threads)
        self.now += self.seconds[threads]


@pytest.fixture
def threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("threads")
def test_the_faster_number_of_threads_is_found_and_left_again() -> None:
    machine = Machine({1: 3.0, 2: 2.0})
    tuner = ThreadTuner(2, lambda: machine.now)

    def run(steps: int) -> float:
        """Return the share of the last steps that one thread has computed."""
        machine.used.clear()
        for _ in range(steps):
            tuner.run(machine.step)
        return machine.used.count(1) / steps

    assert 0 < run(500) < 0.05
    machine.seconds[2] = 9.0  # other programs want the cores
    run(500)
    assert 0.95 < run(500) < 1
    machine.seconds[2] = 2.0
    run(500)
    assert 0 < run(500) < 0.05


@pytest.mark.usefixtures("threads")
def test_a_step_that_is_slow_by_accident_changes_nothing() -> None:
    machine = Machine({1: 3.0, 2: 2.0})
    tuner = ThreadTuner(2, lambda: machine.now)
    for number in range(400):
        machine.seconds[2] = 50.0 if number % 20 == 0 else 2.0
        tuner.run(machine.step)
        assert tuner.count == 2


def test_with_one_thread_nothing_is_tried() -> None:
    before = torch.get_num_threads()
    seen: set[int] = set()
    tuner = ThreadTuner(1)
    for _ in range(100):
        tuner.run(lambda: seen.add(torch.get_num_threads()))
    assert seen == {before}
