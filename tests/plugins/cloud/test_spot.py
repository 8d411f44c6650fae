"""Spot machines: rented for less, taken away, and what becomes of the run then."""

import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentgym.core.config import TrainingConfig
from agentgym.errors import (
    MachineTakenError,
    TrainingInterrupted,
    UnreachableError,
    UnsupportedError,
)
from agentgym.evaluate.events import Observer, silent
from agentgym.plugins.cloud import rented
from agentgym.plugins.cloud.providers.skypilot import SkyPilot
from agentgym.plugins.cloud.record import MachineRecord, bill
from agentgym.train.result import TrainingResult
from agentgym.train.run_folder import RunFolder
from agentgym.train.run_state import RunState
from agentgym.train.trainer import Trainer
from tests.observers import Seen
from tests.plugins.cloud.fakes.runpod import FakeRunPod
from tests.plugins.cloud.fakes.sky import SPOT, FakeSky
from tests.plugins.cloud.home import TRAIN, ended, require_whole, start, wait_for_steps
from tests.plugins.cloud.leases import record as record_of
from tests.plugins.cloud.sshd import Machine
from tests.ui import made_up

SPENT = 0.1


class Trainings:
    """Stand where training on the machines is: each call has its own outcome."""

    def __init__(self, *outcomes: Callable[[RunFolder], None]) -> None:
        self.outcomes = list(outcomes)
        self.calls = 0

    def __call__(
        self,
        config: Any,
        address: Any,
        key: Any,
        run: RunFolder,
        *more: Any,
        **even: Any,
    ) -> TrainingResult:
        self.calls += 1
        if self.outcomes:
            self.outcomes.pop(0)(run)
        return made_up.result(run.path)


@pytest.fixture
def spot(
    sky: FakeSky, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[..., Trainings]:
    """Return a function that says what becomes of one machine after the other.

    Each machine costs the same, whatever the clock says.
    """
    monkeypatch.chdir(tmp_path)
    sky.change(gpus=SPOT)
    spent = property(lambda record: SPENT if record.asked else 0.0)
    monkeypatch.setattr(MachineRecord, "spent", spent)

    def plan(*outcomes: Callable[[RunFolder], None]) -> Trainings:
        made = Trainings(*outcomes)
        monkeypatch.setattr(rented, "train_elsewhere", made)
        return made

    return plan


def train(progress: Observer = silent, **settings: object) -> TrainingResult:
    given: dict[str, object] = {"model": "Qwen/Qwen3-4B", "gpu": "sky"}
    given |= {
        "framework": "native",
        "name": "r",
        "rent.spot": True,
        "yes": True,
        "scenario": "coding",
    }
    config = TrainingConfig.create(**{**given, **settings})
    return Trainer(config, progress=progress).train()


def record() -> MachineRecord:
    return record_of(Path("runs/r"))


def taken(sky: FakeSky, step: int = 0) -> Callable[[RunFolder], None]:
    """Return what happens on a machine that is taken away after a step."""

    def happens(run: RunFolder) -> None:
        if step:
            with run.new_checkpoint(RunState(step=step)):
                pass
        sky.take_away()
        raise UnreachableError("the connection broke")

    return happens


@pytest.mark.slow
def test_a_run_goes_on_on_another_machine_within_one_limit(
    sky: FakeSky, spot: Callable[..., Trainings]
) -> None:
    trainings, progress = spot(taken(sky, step=2)), Seen()
    train(progress, **{"rent.max_cost": 50})
    assert trainings.calls == 2
    kinds = [
        each["task"].split("instance_type: ")[1].split()[0] for each in sky["launches"]
    ]
    assert kinds == ["g6.xlarge", "g2-standard-4"]  # elsewhere, though it costs more
    assert (
        sky["clusters"],
        record().fate,
        record().times_taken,
    ) == ({}, "ended", 1)
    assert record().before == SPENT
    assert record().limit == pytest.approx(50 - SPENT)
    told = " ".join(progress.texts)
    assert "A spot machine may be taken away at any time" in told
    assert "was taken away by its provider. It cost $0.03 at the price" in told
    assert "The run goes on after step 2, on another machine." in told
    assert "All machines of the run: at most $0.20." in bill(Path("runs/r"))
    assert "taken away 1 time." in bill(Path("runs/r"))


@pytest.mark.slow
@pytest.mark.parametrize("step", [0, 2])
def test_without_another_machine_a_run_ends_and_can_go_on_later(
    sky: FakeSky, spot: Callable[..., Trainings], step: int
) -> None:
    def happens(run: RunFolder) -> None:
        sky.change(full=["g6.xlarge", "g2-standard-4"])
        taken(sky, step)(run)

    spot(happens)
    with pytest.raises(
        MachineTakenError, match="no other machine can be rented: None of 2"
    ):
        train()
    assert (sky["clusters"], record().times_taken) == ({}, 1)
    assert record().total == 2 * SPENT or record().total == SPENT
    assert RunFolder(Path("runs/r")).record()["status"] == "interrupted"


@pytest.mark.slow
def test_no_machine_is_rented_that_could_exceed_the_limit(
    sky: FakeSky, spot: Callable[..., Trainings]
) -> None:
    trainings = spot(taken(sky, step=1))
    sky.change(gpus={"L4": SPOT["L4"][:1]})
    config = TrainingConfig.create(
        scenario="coding", model="Qwen/Qwen3-4B", gpu="sky", **{"rent.spot": True}
    )
    least = rented.quotes_for(config)[0].most
    with pytest.raises(MachineTakenError, match="more than --max-cost"):
        train(**{"rent.max_cost": least + SPENT / 2})
    assert (trainings.calls, len(sky["launches"]), sky["clusters"]) == (1, 1, {})


@pytest.mark.slow
def test_machines_that_are_taken_away_at_once_end_a_run(
    sky: FakeSky, spot: Callable[..., Trainings]
) -> None:
    spot(*[taken(sky, step=1)], *[taken(sky)] * 5)
    with pytest.raises(MachineTakenError, match="3 spot machines in a row.*--no-spot"):
        train()
    assert (len(sky["launches"]), record().times_taken) == (4, 4)


@pytest.mark.slow
def test_a_machine_that_is_only_not_reached_is_not_replaced(
    sky: FakeSky, spot: Callable[..., Trainings]
) -> None:
    def breaks(run: RunFolder) -> None:
        raise UnreachableError("the connection broke")

    spot(breaks)
    with pytest.raises(UnreachableError, match="the connection broke"):
        train()
    assert (len(sky["launches"]), sky["clusters"], record().fate) == (
        1,
        {},
        "ended",
    )


@pytest.mark.slow
def test_a_signal_while_the_machine_is_ended_rents_no_other(
    sky: FakeSky, spot: Callable[..., Trainings], monkeypatch: pytest.MonkeyPatch
) -> None:
    spot(taken(sky, step=1))
    real = SkyPilot.terminate

    def terminate(self: SkyPilot, machine: Any) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        real(self, machine)

    monkeypatch.setattr(SkyPilot, "terminate", terminate)
    with pytest.raises(TrainingInterrupted, match="after step 1"):
        train()
    assert (len(sky["launches"]), record().fate) == (1, "taken")


@pytest.mark.parametrize("gpu", ["runpod", "local", "none", "ssh:me@host"])
def test_where_there_is_no_spot_machine_the_error_says_who_has_them(
    runpod: FakeRunPod, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, gpu: str
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnsupportedError, match="--spot.*--gpu sky"):
        train(gpu=gpu)
    assert not [asked for asked in runpod.asked if asked.method == "POST"]
    assert not Path("runs/r").exists()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_no_step_is_lost_or_done_twice(
    sky: FakeSky, machine: Machine, tmp_path: Path
) -> None:
    """Real trainings on two SSH servers, of which the first dies in the middle."""
    second = Machine(tmp_path / "second")
    keys = (machine.folder / "authorized").read_text()
    (second.folder / "authorized").write_text(keys)
    second.start()
    config = machine.folder / "client_config"
    sky.change(gpus=SPOT, ssh_config=str(config), ssh_port=machine.port)
    words = (*TRAIN, "--episodes", "96", "--name", "x", "--gpu", "sky", "--spot")
    process = start(tmp_path, *words, "--max-cost", "50", PATH=os.environ["PATH"])
    try:
        wait_for_steps(tmp_path, 2, process)
        sky.change(ssh_port=second.port)
        sky.take_away()
        machine.close()
        code, out, err = ended(process)
        assert (code, err) == (0, "")
        assert "was taken away by its provider" in out
        require_whole(RunFolder(tmp_path / "runs/x"))
        assert not second.trainees()
    finally:
        second.close()
    found = record_of(tmp_path / "runs/x")
    assert found.address == found.name  # its alias
    assert (tmp_path / "runs/x/agent").is_dir()
    assert (found.fate, found.times_taken, sky["clusters"]) == ("ended", 1, {})
    assert found.before > 0
