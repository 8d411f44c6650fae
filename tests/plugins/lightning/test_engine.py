"""The engine with a process that plays the trainer: turns, checkpoints and its end.

Processes are started, as the engine's part is to start, watch and end one.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from agentgym.core.config import TrainingConfig
from agentgym.core.files import no_beat
from agentgym.core.trajectory import ModelCall, RolloutStatus, Trajectory
from agentgym.engines.base import TrainingBatch
from agentgym.errors import CheckpointError, EngineError
from agentgym.plugins.lightning.engine import LightningEngine
from tests.plugins.lightning.running import TESTS, config
from tests.processes import MARK, processes_of

FAKE = Path(__file__).with_name("fake_trainer.py")
Make = Callable[..., LightningEngine]
_KILLED = """
import sys, time
from pathlib import Path
from agentgym.core.files import no_beat
from agentgym.plugins.lightning.engine import LightningEngine
from tests.plugins.lightning.test_engine import settings
engine = LightningEngine(settings(Path(sys.argv[1])))
engine.connect("http://127.0.0.1:1", "a key", no_beat)
print("ready", flush=True)
time.sleep(600)
"""


@pytest.fixture
def make(own_home: Path, tmp_path: Path) -> Iterator[Make]:
    """Yield what makes an engine, connected to a trainer with a fault."""
    place = own_home / "engines" / "lightning"
    packages = place / "lib" / "python3.12" / "site-packages"
    for name in ("verl-0.8.0", "agentlightning-1.0.2"):
        (packages / f"{name}.dist-info").mkdir(parents=True)
    (place / "bin").mkdir()
    python = place / "bin" / "python"
    with ExitStack() as stack:

        def made(fault: str = "none", connects: bool = True) -> LightningEngine:
            line = f'exec "{sys.executable}" "{FAKE}" {fault} "$@"'
            python.write_text(f"#!/bin/sh\n{line}\n")
            python.chmod(0o755)
            engine = LightningEngine(settings(tmp_path))
            stack.callback(engine.close)
            if connects:
                engine.connect("http://127.0.0.1:1", "a key", no_beat)
            return engine

        yield made


def settings(folder: Path) -> TrainingConfig:
    (folder / "run" / "checkpoints").mkdir(parents=True, exist_ok=True)
    return config(folder, name="run", tasks_per_step=1, group_size=2, episodes=2)


def batch(*, size: int = 2) -> TrainingBatch:
    return TrainingBatch(rollouts=[rollout(f"s1-{n}") for n in range(size)])


def rollout(name: str) -> Trajectory:
    call = ModelCall(
        prompt_ids=[1, 2, 3], response_ids=[4, 5], logprobs=[-1.0, -2.0], messages=[]
    )
    return Trajectory(
        rollout_id=name,
        scenario="coding",
        task_id="t",
        family="f",
        level=1,
        group="g",
        steps=[call],
        status=RolloutStatus.DROPPED,
    )


def save(engine: LightningEngine, folder: Path) -> Path:
    place = folder / "run" / "checkpoints" / f"step-{engine.step:06d}"
    place.mkdir()
    engine.save_checkpoint(place)
    return place


@pytest.mark.slow
def test_an_update_lets_the_trainer_read_the_rollouts_of_the_step(make: Make) -> None:
    engine = make()
    done = engine.update(batch())
    assert (done.step, done.loss, done.grad_norm) == (1, 0.25, 2.0)
    assert done.credit is not None
    verbs = {name: b[0].verb for name, b in done.credit.ledger.items()}
    assert verbs == {"s1-0": "trained", "s1-1": "masked"}
    assert not engine.failure


@pytest.mark.slow
def test_a_checkpoint_is_taken_from_the_trainer_and_starts_another(
    make: Make, tmp_path: Path
) -> None:
    engine = make()
    save(engine, tmp_path)
    engine.update(batch())
    first = save(engine, tmp_path)
    engine.update(batch())
    save(engine, tmp_path)
    engine.export(tmp_path / "two")
    assert "step 2" in (tmp_path / "two" / "model.safetensors").read_text()
    engine.load_checkpoint(first)
    assert engine.step == 1
    with engine.sampling():
        engine.export(tmp_path / "one")
    assert "step 1" in (tmp_path / "one" / "model.safetensors").read_text()
    log = (tmp_path / "run" / "lightning.log").read_text()
    assert log.splitlines() == ["resumed from step 0", "resumed from step 1"]
    engine.close()
    left = {path.name for path in (tmp_path / "run").iterdir()}
    assert left == {"checkpoints", "lightning.log"}


@pytest.mark.slow
def test_a_skipped_step_trains_nothing_and_keeps_the_weights(
    make: Make, tmp_path: Path
) -> None:
    engine = make()
    engine.update(batch())
    save(engine, tmp_path)
    engine.close()
    again = make("skip", connects=False)
    again.load_checkpoint(tmp_path / "run" / "checkpoints" / "step-000001")
    again.connect("http://127.0.0.1:1", "a key", no_beat)
    done = again.update(batch())
    assert "the trainer skipped the step" in done.refused
    assert done.credit is not None
    assert not done.credit.sequences
    assert (save(again, tmp_path) / "global_step_1" / "actor").is_dir()


def test_the_trainers_end_is_shown_with_the_end_of_its_log(make: Make) -> None:
    with pytest.raises(EngineError, match="out of memory"):
        make("start")


def test_an_end_in_an_update_is_shown(make: Make) -> None:
    engine = make("update")
    with pytest.raises(EngineError, match="NCCL lost a rank") as ended:
        engine.update(batch())
    assert "lightning.log" in str(ended.value)
    assert "NCCL lost a rank" in engine.policy.failure


@pytest.mark.slow
def test_the_trainer_ends_with_a_process_that_was_killed(
    make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make(connects=False)  # its environment is what counts
    mark = f"{os.getpid()}-{time.time_ns()}"
    monkeypatch.setenv(MARK, mark)
    process = subprocess.Popen(
        [sys.executable, "-c", _KILLED, str(tmp_path)],
        env={**os.environ, "PYTHONPATH": str(TESTS.parent)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        assert len(processes_of(mark, patience_s=0)) > 1
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert processes_of(mark) == []


def test_a_step_of_another_size_is_refused(make: Make) -> None:
    engine = make()
    with pytest.raises(EngineError, match="2 rollouts each, and this one has 1"):
        engine.update(batch(size=1))


def test_a_checkpoint_of_other_gpus_is_refused(make: Make, tmp_path: Path) -> None:
    engine = make(connects=False)
    place = save(engine, tmp_path)
    manifest = place / "engine.json"
    manifest.write_text(manifest.read_text().replace('"gpus": 1', '"gpus": 2'))
    with pytest.raises(CheckpointError, match="Resume with the settings"):
        engine.load_checkpoint(place)
