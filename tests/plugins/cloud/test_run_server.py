"""The remote side of a run: snapshots, and events of any length."""

import io
import os
import sqlite3
import tarfile
import time
from pathlib import Path

import pytest

from agentgym import TrainingConfig
from agentgym.plugins.cloud.remote import _place
from agentgym.plugins.cloud.run_server import pack, poll, version
from agentgym.train.run_folder import RunFolder


def unpacked(folder: Path, have: dict[str, str], to: Path) -> None:
    packed = io.BytesIO()
    pack(folder, "x", have, packed)
    packed.seek(0)
    with tarfile.open(fileobj=packed) as tar:
        tar.extractall(to, filter="data")


def add_step(run: Path, step: int, text: str = "") -> Path:
    folder = run / "checkpoints" / f"step-{step:06d}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "state.json").write_text(text or str(step))
    return folder


def test_only_new_files_are_fetched_and_old_checkpoints_removed(tmp_path: Path) -> None:
    config = TrainingConfig.create(output=tmp_path / "runs", name="x")
    run, incoming = RunFolder.create(config), tmp_path / "runs" / "x" / ".incoming"
    remote = tmp_path / "remote" / "runs" / "x"
    for step in (1, 2):
        add_step(run.path, step)
    add_step(remote, 2)
    for step in (0, 3):
        add_step(remote, step)
    (remote / "checkpoints" / ".step-000004.9.tmp").mkdir()
    (remote / "metrics.jsonl").write_text("{}\n")
    (remote / "agent").mkdir()
    (remote / "log.txt").symlink_to("/etc/hostname")
    (run.path / "rollouts.db-wal").write_text("of an earlier local training")
    have = {path.name: version(path) for path in run.checkpoints()}
    with sqlite3.connect(remote / "rollouts.db") as store:
        store.execute("PRAGMA journal_mode=WAL")
        store.execute("CREATE TABLE t (x)")
        store.commit()
        unpacked(tmp_path / "remote", have, incoming)
    states = [*incoming.glob("checkpoints/*/state.json")]
    assert {path.parent.name for path in states} == {"step-000000", "step-000003"}
    _place(incoming, run)
    assert [path.name for path in run.checkpoints()] == [
        *("step-000000", "step-000002", "step-000003")
    ]
    assert (run.path / "metrics.jsonl").read_text() == "{}\n"
    assert not (run.path / "agent").exists()  # training has not ended
    assert not (run.path / "log.txt").is_symlink()
    assert not (run.path / "rollouts.db-wal").exists()
    with sqlite3.connect(run.path / "rollouts.db") as store:
        assert store.execute("SELECT count(*) FROM t").fetchone() == (0,)
    add_step(remote, 3, "again, after a warm start")
    (remote / "result.json").write_text("{}")
    unpacked(tmp_path / "remote", {}, incoming)
    _place(incoming, run)
    assert "again" in (run.checkpoints()[-1] / "state.json").read_text()
    assert (run.path / "agent").is_dir()


@pytest.mark.parametrize("length", [10, 3_000_000])
def test_events_are_answered_in_whole_lines(tmp_path: Path, length: int) -> None:
    attempt = tmp_path / "attempt-1"
    attempt.mkdir()
    line = "x" * length + "\n"
    (attempt / "progress.jsonl").write_text(f"one\n{line}cut off")
    request = {
        "client": "a",
        "offset": 4,
        "wait_s": 0.0,
        "stop": True,
        "replies": {"1": True},
    }
    found = poll(tmp_path, request)
    assert (found["events"], found["offset"]) == (line, 4 + len(line))
    assert (found["state"], found["attempt"]) == ("lost", 1)
    assert (attempt / "stop").exists()
    assert (attempt / "reply-1.json").read_text() == "true"


def test_one_client_follows_a_run_until_it_is_silent(tmp_path: Path) -> None:
    request = {"client": "a", "offset": 0, "wait_s": 0.0, "stop": False, "replies": {}}
    assert poll(tmp_path, request)["state"] == "none"
    assert poll(tmp_path, request)["state"] == "none"
    with pytest.raises(SystemExit, match="another client follows this run"):
        poll(tmp_path, {**request, "client": "b"})
    past = time.time() - 100
    os.utime(tmp_path / "heartbeat", (past, past))
    assert poll(tmp_path, {**request, "client": "b"})["state"] == "none"
