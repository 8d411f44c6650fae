"""The machine's end: what comes in parts, who may ask, and where files may go."""

import io
import json
import os
import sqlite3
import time
from pathlib import Path
from typing import Any

import pytest

from agentgym.plugins.cloud.run_server import BusyError, RunServer, serve, version


@pytest.fixture
def there(tmp_path: Path) -> RunServer:
    return RunServer(tmp_path / "run")


@pytest.mark.parametrize("name", ["../out", "/etc/x", "..", "a/../../out", "."])
def test_nothing_goes_outside(there: RunServer, name: str) -> None:
    with pytest.raises(ValueError, match="outside of the run's folder"):
        there.get(name, 0, 10)


def test_a_snapshot_stays_while_home_fetches_it(
    there: RunServer, tmp_path: Path
) -> None:
    run = tmp_path / "run" / "runs" / "x"
    for step in (1, 2, 3):
        folder = run / "checkpoints" / f"step-00000{step}"
        folder.mkdir(parents=True)
        (folder / "state.json").write_text(str(step))
    (folder / "state.json").rename(folder / "weights")  # it is being removed
    (run / "checkpoints" / ".step-000004.9.tmp").mkdir()
    (run / "metrics.jsonl").write_text("{}\n")
    (run / "agent").mkdir()
    with sqlite3.connect(run / "rollouts.db") as store:
        store.execute("PRAGMA journal_mode=WAL")
        store.execute("CREATE TABLE t (x)")
        store.commit()
        found = there.stage(
            "x", {"step-000001": version(folder.parent / "step-000001")}
        )
        store.execute("INSERT INTO t VALUES ('new')")
        store.commit()
    state = "checkpoints/step-000002/state.json"
    assert set(found["files"]) == {state, "metrics.jsonl", "rollouts.db"}
    assert found["files"][state][0] == 1
    assert found["all"] == ["step-000001", "step-000002", "step-000003"]
    (run / state).unlink()  # it makes room
    assert there.get(f"outbox/{state}", 0, 10) == (None, b"2")
    with sqlite3.connect(tmp_path / "run" / "outbox" / "rollouts.db") as store:
        assert store.execute("SELECT count(*) FROM t").fetchone() == (0,)


def test_a_client_that_died_is_replaced_and_one_that_lives_is_not(
    there: RunServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert there.hello("first")["state"] == "none"
    there.hello("second")  # no process serves the first any more
    serving = "agentgym.plugins.cloud.run_server._is_serving"
    monkeypatch.setattr(serving, lambda pid, folder: True)
    killed: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, number: killed.append(pid))
    with pytest.raises(BusyError, match="another client"):
        there.hello("third")
    assert killed == []
    there.hello("second")  # its own connection, which hangs
    past = time.time() - 100
    os.utime(tmp_path / "run" / "heartbeat", (past, past))
    there.hello("third")
    assert len(killed) == 2


def test_what_fails_is_an_answer(there: RunServer) -> None:
    asked: list[dict[str, Any]] = [
        {"op": "get", "path": "..", "offset": 0, "length": 1},
        {"op": "get", "path": "x", "offset": 0, "length": 1, "size": 3},
        {"op": "remove"},
    ]
    questions = b"".join(
        json.dumps(each).encode() + b"\n" + b"abc"[: each.get("size", 0)]
        for each in asked
    )
    answers = io.BytesIO()
    serve(there, io.BytesIO(questions), answers)
    found = [json.loads(line) for line in answers.getvalue().splitlines()]
    kinds = [each.get("kind") for each in found]
    assert kinds == ["ValueError", None, "KeyError"]


def test_a_run_is_removed_after_the_answer_that_allows_it(
    there: RunServer, tmp_path: Path
) -> None:
    """A rented machine may end at once after this, and its client waits for it."""
    (tmp_path / "run" / "attempt-1").mkdir()
    seen: list[bool] = []

    class Answers(io.BytesIO):
        def flush(self) -> None:
            seen.append((tmp_path / "run" / "attempt-1").exists())

    finish, more = b'{"op": "finish"}\n', b'{"op": "poll"}\n'
    serve(there, io.BytesIO(finish + more), Answers())
    assert (seen, (tmp_path / "run").exists()) == ([True], False)


def test_a_line_of_any_length_is_told(there: RunServer, tmp_path: Path) -> None:
    attempt = tmp_path / "run" / "attempt-1"
    attempt.mkdir()
    long = b"x" * 3_000_000
    (attempt / "progress.jsonl").write_bytes(b"one\n" + long + b"\ncut off")
    assert there.poll(4)[1] == long + b"\n"
    assert there.poll(4 + len(long) + 1)[1] == b""
