"""A lease of RunPod's fake, and what must be left after one."""

from pathlib import Path
from typing import Any

from agentgym.plugins.cloud.base import Offer
from agentgym.plugins.cloud.lease import KEY_FILE, Lease
from agentgym.plugins.cloud.providers.runpod import RunPod
from agentgym.plugins.cloud.record import MachineRecord
from tests.plugins.cloud.fakes.fixtures import QUICK
from tests.plugins.cloud.fakes.runpod import FakeRunPod


def offers(*gpus: str) -> list[Offer]:
    known = {each.gpu: each for each in RunPod().offers()}
    return [known[gpu] for gpu in gpus or ("L4",)]


def lease(folder: Path, *gpus: str, **more: Any) -> Lease:
    return Lease(RunPod(), offers(*gpus), folder, waits=QUICK, **more)


def record(folder: Path) -> MachineRecord:
    found = MachineRecord.read(folder)
    assert found is not None
    return found


def check_nothing_left(runpod: FakeRunPod, folder: Path) -> None:
    assert runpod.pods == {}
    assert not (folder / KEY_FILE).exists()
    assert not (folder / f"{KEY_FILE}.pub").exists()
