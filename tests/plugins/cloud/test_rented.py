"""A run on a rented machine: asked, rented, trained on, given back."""

import signal
import subprocess
import threading
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from agentgym.core.config import TrainingConfig
from agentgym.errors import (
    ComputeError,
    LimitReached,
    NotFoundError,
    TrainingInterrupted,
    UnreachableError,
    UnsupportedError,
    UsageError,
)
from agentgym.evaluate.events import Observer, silent
from agentgym.plugins.cloud import quote, rented
from agentgym.plugins.cloud.base import Address
from agentgym.plugins.cloud.lease import KEY_FILE
from agentgym.plugins.cloud.quote import Quote
from agentgym.plugins.cloud.record import MachineRecord, now
from agentgym.train.result import TrainingResult
from agentgym.train.run_folder import RunFolder
from agentgym.train.trainer import Trainer
from tests.observers import Seen
from tests.plugins.cloud.fakes.lambda_cloud import FakeLambda
from tests.plugins.cloud.fakes.runpod import FakeRunPod
from tests.plugins.cloud.home import be_pods, ended, start_client, wait_for
from tests.plugins.cloud.leases import record as record_of
from tests.plugins.cloud.sshd import Machine
from tests.ui import made_up
from tests.variants import first_of

BIG = "Qwen/Qwen3-4B"


class There:
    """Stands where training on the machine is, which it does not do."""

    def __init__(self) -> None:
        self.calls: list[dict[str, Any]] = []
        self.error: BaseException | None = None

    def __call__(
        self,
        config: TrainingConfig,
        address: Address,
        key_file: Path,
        run: RunFolder,
        progress: Observer,
        **more: Any,
    ) -> TrainingResult:
        found = {"address": address, "key": key_file.read_text(), "run": run}
        found["order"] = more["ending"]()
        self.calls.append(found)
        if self.error is not None:
            raise self.error
        return made_up.result(run.path)


@pytest.fixture
def there(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> There:
    monkeypatch.chdir(tmp_path)
    made = There()
    monkeypatch.setattr(rented, "train_elsewhere", made)
    return made


def train(progress: Observer = silent, **settings: object) -> TrainingResult:
    given = {"model": BIG, "gpu": "runpod", "framework": "native", "name": "r"}
    config = TrainingConfig.create(**{"scenario": "coding", **given, **settings})
    return Trainer(config, progress=progress).train()


def record() -> MachineRecord:
    return record_of(Path("runs/r"))


@pytest.mark.slow
def test_a_run_is_rented_for_once_somebody_agrees(
    runpod: FakeRunPod, there: There
) -> None:
    progress = Seen(True)
    train(progress)
    [call] = there.calls
    assert str(call["address"]) == f"root@127.0.0.1:{runpod.ssh}"
    assert "PRIVATE KEY" in call["key"]
    assert call["order"]["method"] == "DELETE"
    assert call["order"]["ends_s"] > 600
    assert call["order"]["silent_s"] > 0
    assert "costs $0.71 an hour, its disk included" in progress.facts[0]
    assert "tokens/s (assumed" in progress.facts[0]
    assert any("is ended. It cost about $0.0" in told for told in progress.texts)
    assert (runpod.pods, record().fate) == ({}, "ended")
    assert record().name.startswith("agentgym-r-")
    assert not (Path("runs/r") / KEY_FILE).exists()


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (None, "Nothing was rented, since this is not a terminal.*--yes"),
        (False, "Nothing was rented"),
    ],
)
def test_nothing_is_rented_that_nobody_agreed_to(
    runpod: FakeRunPod, there: There, answer: bool | None, words: str
) -> None:
    with pytest.raises(UsageError, match=words):
        train(Seen(answer))
    assert not [asked for asked in runpod.asked if asked.method == "POST"]
    assert not Path("runs/r").exists()


@pytest.mark.parametrize(
    ("settings", "error", "words"),
    [
        ({"gpu": "runpod:B300"}, UsageError, "has no GPU 'B300'. It has: RTX A4000"),
        ({"gpu": "lambda:GH200"}, UsageError, "GH200 has an ARM processor"),
        ({"rent.max_cost": 0.01}, UsageError, r"more than --max-cost \$0.01"),
        ({"model": "Qwen/Qwen3-235B"}, ComputeError, "no single GPU of runpod"),
        ({"engine": "verl"}, UnsupportedError, "engine = 'verl'"),
        ({"deterministic": True}, UnsupportedError, "deterministic = true"),
        ({"model": "openai:gpt-5"}, UnsupportedError, "answers behind a server"),
        ({"scenario": "codng"}, NotFoundError, "coding"),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_before_anything_is_spent(
    runpod: FakeRunPod,
    lambda_cloud: FakeLambda,
    there: There,
    settings: dict[str, object],
    error: type[Exception],
    words: str,
) -> None:
    with pytest.raises(error, match=words):
        train(Seen(True), **settings)
    for fake in (runpod, lambda_cloud):
        assert not [asked for asked in fake.asked if asked.method == "POST"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (UnreachableError("gone"), UnreachableError),
        (KeyboardInterrupt(), TrainingInterrupted),
    ],
)
def test_a_run_that_breaks_keeps_its_folder_and_no_machine(
    runpod: FakeRunPod, there: There, error: BaseException, raised: type[Exception]
) -> None:
    there.error = error
    progress = Seen(True)
    with pytest.raises(raised) as caught:
        train(progress)
    assert runpod.pods == {}
    assert record().fate == "ended"
    assert RunFolder(Path("runs/r")).record()["status"] == "interrupted"
    told = [*progress.texts, *getattr(caught.value, "__notes__", [])]
    assert any("is ended. It cost about $0.0" in each for each in told)


@pytest.mark.slow
def test_an_end_that_loses_something_says_so(
    runpod: FakeRunPod, there: There, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*words: object) -> None:
        (Path("runs/r/checkpoints/step-000002")).mkdir(exist_ok=True)
        raise ComputeError("its disk is full")

    monkeypatch.setattr(rented, "fetch_results", fails)
    there.error = KeyboardInterrupt()
    with pytest.raises(TrainingInterrupted) as caught:
        train(yes=True)
    assert "after step 2; later results of its machine are lost" in str(caught.value)
    assert "its disk is full" in " ".join(caught.value.__notes__)
    assert (runpod.pods, record().fate) == ({}, "ended")


@pytest.mark.slow
def test_the_limit_stops_a_run_as_ctrl_c_does(
    runpod: FakeRunPod, there: There, monkeypatch: pytest.MonkeyPatch
) -> None:
    def waits(*words: Any, **more: Any) -> TrainingResult:
        assert more["ending"]()["ends_s"] is not None
        assert record().guarded
        threading.Event().wait(60)
        raise AssertionError

    monkeypatch.setattr(rented, "train_elsewhere", waits)
    monkeypatch.setattr(quote, "SETUP_MINUTES", 0.0)
    monkeypatch.setattr(Quote, "limit", 2e-4)
    with pytest.raises(LimitReached) as caught:
        train(yes=True)
    told = " ".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
    assert "is ended. It cost about" in told
    assert told.count("Continue with: agentgym train --resume runs/r") == 1
    assert told.endswith("--max-cost 2")
    assert RunFolder(Path("runs/r")).record()["status"] == "interrupted"


def _killed(run: Path, runpod: FakeRunPod, *, key: bool) -> MachineRecord:
    """Leave a run as a kill of its client does, with its machine."""
    config = TrainingConfig.create(
        scenario="coding", model=BIG, gpu="runpod", framework="native", name="r"
    )
    RunFolder.create(config)
    if key:
        (run / KEY_FILE).write_text("PRIVATE KEY")
    pod = runpod.make("agentgym-r-0011", status="RUNNING")
    made = MachineRecord(
        "agentgym-r-0011",
        "runpod",
        "rented",
        gpu="L4",
        id=pod["id"],
        quoted=0.43,
        hourly=0.43,
        limit=5.0,
        asked=now(),
    )
    return made.write(run)


@pytest.mark.slow
@pytest.mark.parametrize("key", [True, False])
def test_a_run_whose_client_was_killed(
    runpod: FakeRunPod, there: There, key: bool
) -> None:
    before = _killed(Path("runs/r"), runpod, key=key)
    trainer = Trainer(TrainingConfig.create())
    trainer.train(resume="r", yes=True)
    launches = runpod.count("POST", "/pods")
    assert launches == (0 if key else 1)  # without its key nobody can log in
    assert len(there.calls) == 1
    assert (runpod.pods, record().fate) == ({}, "ended")
    assert (record().name == before.name) == key
    assert (record().asked == before.asked) == key, "its cost goes on from there"


@pytest.mark.slow
def test_a_cap_is_for_all_machines_of_a_run(runpod: FakeRunPod, there: There) -> None:
    run = Path("runs/r")
    killed = _killed(run, runpod, key=False).changed(hourly=3600.0, before=4.0)
    second_ago = datetime.now().astimezone() - timedelta(seconds=1)
    killed.changed(asked=second_ago.isoformat()).write(run)  # a dollar a second
    trainer = Trainer(TrainingConfig.create())
    with pytest.raises(UsageError, match=r"have cost \$\d.*--max-cost is \$4.50"):
        trainer.train(resume="r", yes=True, **{"rent.max_cost": 4.5})
    assert (runpod.pods, runpod.count("POST", "/pods")) == ({}, 0)
    trainer.train(resume="r", yes=True, **{"rent.max_cost": 1000})
    limit = record().limit
    assert limit is not None
    assert record().before > 5
    assert limit == pytest.approx(1000 - record().before)


def start_rented(
    runpod: FakeRunPod, machine: Machine, folder: Path, episodes: str
) -> "subprocess.Popen[str]":
    """Start a real training, on a real SSH server that only lets in its own key."""
    be_pods(machine, runpod)
    words = ["train", "coding", "--framework", "native", "--episodes", episodes]
    words += ["--name", "r", "--gpu", "runpod", "--yes", "--max-cost", "5"]
    return start_client(runpod, folder, *words)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("number", first_of([signal.SIGTERM, signal.SIGHUP]))
def test_a_signal_loses_nothing_that_is_finished(
    runpod: FakeRunPod, machine: Machine, tmp_path: Path, number: signal.Signals
) -> None:
    process = start_rented(runpod, machine, tmp_path, "3200")
    metrics = "runs/*/runs/r/metrics.jsonl"  # not those of the outbox

    def steps_there() -> int:
        paths = (machine.home / ".agentgym/elsewhere").glob(metrics)
        return sum(len(path.read_text().splitlines()) for path in paths)

    wait_for(lambda: steps_there() >= 3, process)
    finished = steps_there()
    process.send_signal(number)
    code, out, err = ended(process)
    assert code != 0
    assert "nothing finished is lost" in err, (out, err)
    run = RunFolder(tmp_path / "runs" / "r")
    assert len(run.metrics()) >= finished
    assert run.checkpoints()[-1].name == f"step-{len(run.metrics()):06d}"
    assert (runpod.pods, machine.trainees()) == ({}, [])


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_run_on_a_rented_machine_is_done_and_the_machine_ended(
    runpod: FakeRunPod, machine: Machine, tmp_path: Path
) -> None:
    """A real training, on a real SSH server that only lets in the run's own key."""
    begun = time.time()
    process = start_rented(runpod, machine, tmp_path, "32")
    code, out, err = ended(process)
    assert code == 0, err
    assert "Before and after" in out
    assert "Trying again" not in out + err
    found = record_of(tmp_path / "runs/r")
    assert (found.fate, runpod.pods, found.id) == ("ended", {}, "pod1")
    most = (time.time() - begun) * found.hourly / 3600
    assert 0 < found.spent <= most
    run = RunFolder(tmp_path / "runs/r")
    assert run.record()["status"] == "done"
    assert run.record()["elsewhere"] is None
    assert (run.path / "agent").is_dir()
    assert not (run.path / KEY_FILE).exists()
    assert machine.trainees() == []
    for path in (tmp_path / "runs").rglob("*"):
        if path.is_file() and path.suffix in ("", ".json", ".jsonl", ".log", ".md"):
            assert runpod.key not in path.read_text(errors="replace")
