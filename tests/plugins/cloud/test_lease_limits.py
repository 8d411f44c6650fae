"""A lease's money, and the time that is kept of it to bring results home."""

import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest

from agentgym.errors import ComputeError
from agentgym.plugins.cloud.lease import Lease
from agentgym.plugins.cloud.providers.runpod import RunPod
from tests.plugins.cloud.fakes.fixtures import QUICK
from tests.plugins.cloud.fakes.runpod import DISK_HOURLY, FakeRunPod
from tests.plugins.cloud.leases import check_nothing_left, lease, offers, record

SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.mark.parametrize("more", [{}, {"max_hourly": 0.45}], ids=str)
def test_a_price_that_is_higher_after_the_launch_ends_it(
    runpod: FakeRunPod, tmp_path: Path, more: dict[str, float]
) -> None:
    runpod.real_price = 0.55
    cap = r"--max-hourly is \$0.45" if more else r"\$0.45 was agreed on"
    with pytest.raises(ComputeError, match=rf"\$0.57 an hour, and {cap}") as caught:
        lease(tmp_path, **more).__enter__()
    check_nothing_left(runpod, tmp_path)
    assert "is ended" in " ".join(caught.value.__notes__)
    paid = pytest.approx(0.55 + DISK_HOURLY)
    assert (record(tmp_path).fate, record(tmp_path).hourly) == ("ended", paid)


@pytest.mark.slow
@pytest.mark.parametrize("with_disk", [True, False])
@pytest.mark.parametrize("price", [None, 0.55])
def test_a_disk_is_paid_whether_the_price_of_a_pod_includes_it_or_not(
    runpod: FakeRunPod, tmp_path: Path, with_disk: bool, price: float | None
) -> None:
    """Which of both is not documented: the most that it can be is what counts."""
    runpod.with_disk, runpod.real_price = with_disk, price
    exact = (price or 0.43) + DISK_HOURLY
    with lease(tmp_path, max_hourly=0.60) as held:
        most = exact if price is None or not with_disk else exact + DISK_HOURLY
        assert held.record.hourly == pytest.approx(most)
    check_nothing_left(runpod, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("limit", [1e-9, 3e-4])
def test_a_limit_interrupts_the_block(
    runpod: FakeRunPod, tmp_path: Path, limit: float
) -> None:
    reached = pytest.raises(ComputeError, match=r"limit of \$0.00 is reached")
    with reached, lease(tmp_path, limit=limit) as held:
        assert held.seconds_left is not None
        threading.Event().wait(60)
    check_nothing_left(runpod, tmp_path)
    assert record(tmp_path).limit == limit


@pytest.mark.slow
@pytest.mark.parametrize("number", SIGNALS)
def test_what_a_machine_has_is_home_before_a_signal_ends_it(
    runpod: FakeRunPod, tmp_path: Path, number: signal.Signals
) -> None:
    there: list[int] = []

    def rescue() -> None:
        there.append(len(runpod.pods))

    held = lease(tmp_path, rescue=rescue)
    old = signal.signal(signal.SIGTERM, lambda *_: None)
    try:
        with pytest.raises(KeyboardInterrupt) as caught, held:
            os.kill(os.getpid(), number)
            threading.Event().wait(60)
    finally:
        signal.signal(signal.SIGTERM, old)
    assert there == [1]
    assert held.lost == ""
    assert "lost" not in " ".join(caught.value.__notes__)
    check_nothing_left(runpod, tmp_path)


@pytest.mark.slow
def test_a_second_signal_does_not_lose_what_a_machine_has(
    runpod: FakeRunPod, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    done: list[bool] = []

    def rescue() -> None:
        os.kill(os.getpid(), signal.SIGHUP)
        time.sleep(0.3)
        done.append(True)

    held = lease(tmp_path, rescue=rescue)
    with pytest.raises(KeyboardInterrupt), held:
        os.kill(os.getpid(), signal.SIGINT)
        threading.Event().wait(60)
    assert (done, held.lost) == ([True], "")
    assert "being fetched first; 2 more" in capfd.readouterr().err
    check_nothing_left(runpod, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["waits", "limit", "signals"])
def test_bringing_home_has_a_bound_and_says_what_is_lost(
    runpod: FakeRunPod, tmp_path: Path, how: str
) -> None:
    """No run costs more because its machine hangs."""
    hangs = threading.Event()

    def rescue() -> None:
        for _ in range(3 * (how == "signals")):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.1)
        hangs.wait(60)

    waits = replace(QUICK, fetch_s=0.2 if how == "waits" else 60.0)
    limit = 3e-4 if how == "limit" else None
    held = Lease(RunPod(), offers(), tmp_path, waits=waits, rescue=rescue, limit=limit)
    with pytest.raises(RuntimeError) as caught, held:
        raise RuntimeError("its own")
    hangs.set()
    assert held.lost
    assert "are lost" in " ".join(caught.value.__notes__)
    check_nothing_left(runpod, tmp_path)
