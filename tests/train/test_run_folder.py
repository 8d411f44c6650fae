"""RunFolder: what is refused, and what a kill leaves behind."""

import errno
import os
import shutil
import subprocess
import sys
from collections import namedtuple
from pathlib import Path

import pytest

from agentgym import TrainingConfig
from agentgym.errors import CheckpointError, RunFolderError
from agentgym.evaluate.metrics import Metrics
from agentgym.rollout.store.store import Store
from agentgym.security.audit import AuditLog
from agentgym.security.files import LogFile
from agentgym.train import run_folder
from agentgym.train.run_folder import RunFolder, list_runs, metrics_line
from agentgym.train.run_state import RunState
from tests.ui import made_up


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder.create(TrainingConfig.create(output=tmp_path, name="first"))


def test_what_it_holds_is_for_this_user_alone(run: RunFolder) -> None:
    run.append_metrics({"step": 1})
    with run.lock(), Store(run.path / "rollouts.db"), LogFile(run.path / "workers.log"):
        AuditLog(run.path / "audit.jsonl").write("executed")
        files = [path for path in run.path.iterdir() if path.is_file()]
        assert len(files) >= 6
        assert "rollouts.db-wal" in {path.name for path in files}
        assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
        assert run.path.stat().st_mode & 0o777 == 0o700
    run.path.chmod(0o750)
    run.write_record(status="interrupted")
    with Store(run.path / "rollouts.db"):
        assert run.path.stat().st_mode & 0o777 == 0o750, "shared on purpose"


def test_a_folder_of_other_files_is_refused_and_kept(tmp_path: Path) -> None:
    thesis = tmp_path / "thesis" / "chapter.tex"
    thesis.parent.mkdir()
    thesis.write_text("Once upon a time")
    with pytest.raises(RunFolderError, match=r"thesis holds other files.*--name"):
        RunFolder.create(TrainingConfig.create(output=tmp_path, name="thesis"))
    assert thesis.read_text() == "Once upon a time"
    assert os.listdir(thesis.parent) == ["chapter.tex"]


def test_settings_of_a_run_are_its_own_whatever_the_environment_says(
    run: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTGYM_LEARNING_RATE", "0.5")
    monkeypatch.setenv("AGENTGYM_LORA_RANK", "3")
    assert run.config().learning_rate is None
    assert run.config().replaced(episodes=64).lora_rank is None


def test_write_error_leaves_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(run_folder, "write_json", refuse)
    with pytest.raises(RunFolderError, match="Read-only file system"):
        RunFolder.create(TrainingConfig.create(output=tmp_path, name="x"))
    assert not (tmp_path / "x").exists()


def test_nearly_full_disk_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = namedtuple("usage", "total used free")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage(9, 9, 5 * 2**20))
    with pytest.raises(RunFolderError, match="Only 5 MB are free"):
        RunFolder.create(TrainingConfig.create(output=tmp_path, name="x"))
    assert not (tmp_path / "x").exists()


def test_run_is_found_by_name_and_by_path(run: RunFolder) -> None:
    output = run.path.parent
    assert RunFolder.open("first", output).path == run.path
    assert RunFolder.open(run.path).path == run.path
    assert [found.path for found in list_runs(output)] == [run.path]


def test_lock_keeps_a_second_process_out_and_a_kill_frees_it(run: RunFolder) -> None:
    script = (
        "import sys, time; from pathlib import Path\n"
        "from agentgym.train.run_folder import RunFolder\n"
        f"with RunFolder(Path({str(run.path)!r})).lock():\n"
        "    print('locked', flush=True); time.sleep(60)\n"
    )
    holder = subprocess.Popen(
        [sys.executable, "-c", script], stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "locked\n"
        refused = pytest.raises(RunFolderError, match=f"Process {holder.pid} is train")
        with refused, run.lock():
            pass
    finally:
        holder.kill()
        holder.wait()
    with run.lock():
        assert (run.path / ".lock").read_text() == str(os.getpid())


def test_checkpoint_appears_whole_or_not_at_all(run: RunFolder) -> None:
    with run.new_checkpoint(RunState(step=1)) as folder:
        (folder / "weights").write_text("new")
        assert run.checkpoints() == []
    with (
        pytest.raises(ZeroDivisionError),
        run.new_checkpoint(RunState(step=2)) as folder,
    ):
        (folder / "weights").write_text("half")
        _ = 1 / 0
    assert [path.name for path in run.checkpoints()] == ["step-000001"]
    loaded = run.load_state()
    assert loaded is not None
    assert loaded[0].step == 1


def test_only_the_newest_checkpoints_are_kept(run: RunFolder) -> None:
    for step in range(1, 6):
        with run.new_checkpoint(RunState(step=step)):
            pass
    assert [path.name for path in run.checkpoints()] == ["step-000004", "step-000005"]


def test_corrupt_checkpoint_says_what_to_remove(run: RunFolder) -> None:
    with run.new_checkpoint(RunState(step=1)):
        pass
    (run.checkpoints()[-1] / "state.json").write_text('{"step": 1, "epis')
    with pytest.raises(CheckpointError, match="step-000001 is corrupt"):
        run.load_state()


def test_line_holds_the_validation_after_its_step(run: RunFolder) -> None:
    for step, level in enumerate([None, 0.6, None, 0.8], start=1):
        validation = None if level is None else made_up.metrics(level)
        run.append_metrics(metrics_line(made_up.step(step), validation))
    run.truncate_metrics(3)
    old, new, last = run.metrics()
    assert "validation" not in old | last
    assert new["step"] == 2
    assert Metrics.model_validate(new["validation"]) == made_up.metrics(0.6)


def test_cut_last_metrics_line_is_left_out(run: RunFolder) -> None:
    for step in (1, 2, 3):
        run.append_metrics({"step": step})
    with (run.path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "rew')
    assert [line["step"] for line in run.metrics()] == [1, 2, 3]
    run.truncate_metrics(2)
    assert [line["step"] for line in run.metrics()] == [1, 2]


@pytest.mark.parametrize("record", ["{", '{"config": null}'])
def test_record_without_settings_is_refused(run: RunFolder, record: str) -> None:
    (run.path / "run.json").write_bytes(record.encode("latin-1"))
    for look in (run.record, run.config):
        words = r"no readable run: .* start a new run"
        with pytest.raises(RunFolderError, match=words):
            look()


@pytest.mark.parametrize("line", ["{", '{"step": null}'])
def test_broken_metrics_line_says_where_and_what_to_do(
    run: RunFolder, line: str
) -> None:
    for step in (1, 2):
        run.append_metrics({"step": step})
    with (run.path / "metrics.jsonl").open("ab") as file:
        file.write(line.encode("latin-1") + b'\n{"step": 4}\n')
    for look in (run.metrics, lambda: run.truncate_metrics(2)):
        with pytest.raises(RunFolderError, match=r"metrics.jsonl, line 3, .* Remove"):
            look()
