"""Launches of SkyPilot's clusters that hang or are interrupted; see also test_spot."""

import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from agentgym.plugins.cloud.lease import Lease
from agentgym.plugins.cloud.providers.skypilot import SkyPilot
from tests.plugins.cloud.fakes.fixtures import QUICK
from tests.plugins.cloud.fakes.sky import FakeSky
from tests.plugins.cloud.home import ended, start, wait_for
from tests.plugins.cloud.leases import record
from tests.variants import first_of

WORDS = ["train", "coding", "--framework", "native", "--episodes", "32", "--name", "r"]


def lease(folder: Path, **more: Any) -> Lease:
    offers = sorted(SkyPilot().offers(), key=lambda offer: offer.hourly)
    return Lease(SkyPilot(), offers, folder, waits=QUICK, **more)


def rents(sky: FakeSky, folder: Path, *words: str) -> "subprocess.Popen[str]":
    path = os.environ["PATH"]
    return start(folder, *WORDS, "--gpu", "sky", "--yes", *words, PATH=path)


@pytest.mark.slow
def test_a_launch_that_hangs_is_found_by_its_name_and_used(
    sky: FakeSky, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[str] = []
    sky.change(on_launch="hangs")
    monkeypatch.setattr(SkyPilot, "launch_s", 2.0)
    with lease(tmp_path, report=told.append) as held:
        assert list(sky["clusters"]) == [held.record.name]
    assert len(sky["launches"]) == 1
    assert "It exists." in told
    assert (sky["clusters"], record(tmp_path).fate) == ({}, "ended")


@pytest.mark.slow
@pytest.mark.timeout(120)
@pytest.mark.parametrize("number", first_of([signal.SIGINT, signal.SIGTERM]))
def test_a_signal_in_the_launch_waits_for_it_and_ends_the_cluster(
    sky: FakeSky, tmp_path: Path, number: int
) -> None:
    sky.change(launch_s=3.0)
    process = rents(sky, tmp_path)
    wait_for(lambda: sky["launches"], process)
    os.killpg(process.pid, number)  # as a terminal does
    code, _, err = ended(process)
    assert code != 0
    assert "The answer to the launch is awaited first" in err
    assert "Traceback" not in err
    assert sky["clusters"] == {}
    assert not (tmp_path / "runs/r").exists() or record(tmp_path / "runs/r").fate in (
        "ended",
    )
