"""The machine's end: what comes in parts, who may ask, and where files may go."""

import io
import json
import os
import sqlite3
import tarfile
import time
from pathlib import Path
from typing import Any

import pytest

from agentgym.plugins.cloud.elsewhere.run_server import (
    BLOCK,
    BusyError,
    RunServer,
    serve,
    version,
)


@pytest.fixture
def there(tmp_path: Path) -> RunServer:
    return RunServer(tmp_path / "run")


def archive(**files: str) -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        for name, text in files.items():
            info = tarfile.TarInfo(name.replace("__", "/"))
            info.size = len(text)
            tar.addfile(info, io.BytesIO(text.encode()))
    return made.getvalue()


def test_an_archive_that_broke_off_goes_on_where_it_did(
    there: RunServer, tmp_path: Path
) -> None:
    data = archive(a="one", b__c="two")
    there.put("x.tar", 0, data[:700])
    assert there.have("x.tar") == 700
    there.put("x.tar", 600, data[600:])
    there.unpack("x.tar", "inputs")
    inputs = tmp_path / "run" / "inputs"
    assert (inputs / "b" / "c").read_text() == "two"
    assert there.have("x.tar") == 0
    there.put("y.tar", 0, archive(d="three"))
    there.unpack("y.tar", "inputs")
    assert [path.name for path in inputs.iterdir()] == ["d"]


@pytest.mark.parametrize("name", ["../out", "/etc/x", "..", "a/../../out", "."])
def test_nothing_goes_outside(there: RunServer, name: str) -> None:
    with pytest.raises(ValueError, match="outside of the run's folder"):
        there.get(name, 0, 10)
    with pytest.raises(ValueError, match="outside of the run's folder"):
        there.unpack("x.tar", name)


def test_an_archive_that_cannot_be_unpacked_leaves_nothing(
    there: RunServer, tmp_path: Path
) -> None:
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w") as tar:
        tar.add(__file__, "code.py")
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    there.put("x.tar", 0, data.getvalue())
    with pytest.raises(tarfile.AbsoluteLinkError):
        there.unpack("x.tar", "inputs")
    left = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert left == []


def test_checkpoints_are_kept_until_home_has_them(
    there: RunServer, tmp_path: Path
) -> None:
    run = tmp_path / "run" / "runs" / "x"
    for step in (1, 2):
        folder = run / "checkpoints" / f"step-00000{step}"
        folder.mkdir(parents=True)
        (folder / "state.json").write_text(str(step))
    (run / "checkpoints" / ".step-000003.9.tmp").mkdir()
    (run / "metrics.jsonl").write_text("{}\n")
    have = {path.name: version(path) for path in (run / "checkpoints").glob("step-*")}
    stage = f"step-000002-{have.pop('step-000002')}"
    found = there.files("x", have)
    assert found["checkpoints"] == {stage: {"state.json": 1}}
    assert found["all"] == ["step-000001", "step-000002"]
    assert found["others"] == {"metrics.jsonl": 3}
    (run / "checkpoints" / "step-000002" / "state.json").unlink()  # it makes room
    assert there.get(f"outbox/{stage}/state.json", 0, 10) == (None, b"2")
    there.files("x", {**have, "step-000002": ""})
    assert there.get(f"outbox/{stage}/state.json", 0, 10) == (None, b"")


def test_a_checkpoint_that_was_written_again_is_offered_again(
    there: RunServer, tmp_path: Path
) -> None:
    folder = tmp_path / "run" / "runs" / "x" / "checkpoints" / "step-000000"
    folder.mkdir(parents=True)
    state = folder / "state.json"
    state.write_text("baseline")
    have = {"step-000000": version(folder)}
    assert there.files("x", have)["checkpoints"] == {}
    new = folder / "state.new"  # as a new folder, since the old file may be linked
    new.write_text("warm start")
    new.replace(state)
    [(stage, sizes)] = there.files("x", have)["checkpoints"].items()
    assert sizes == {"state.json": 10}
    assert there.get(f"outbox/{stage}/state.json", 0, 20) == (None, b"warm start")


def test_a_checkpoint_that_is_being_removed_is_not_offered(
    there: RunServer, tmp_path: Path
) -> None:
    half = tmp_path / "run/runs/x/checkpoints/step-000003"
    half.mkdir(parents=True)
    (half / "weights.safetensors").write_bytes(b"1")
    assert there.files("x", {})["checkpoints"] == {}


def test_only_changed_blocks_of_the_store_differ(
    there: RunServer, tmp_path: Path
) -> None:
    run = tmp_path / "run" / "runs" / "x"
    run.mkdir(parents=True)
    with sqlite3.connect(run / "rollouts.db") as store:
        store.execute("PRAGMA journal_mode=WAL")
        store.execute("CREATE TABLE t (x)")
        store.executemany("INSERT INTO t VALUES (?)", [(os.urandom(2000),)] * 1000)
        store.commit()
        first = there.snapshot("x")
        store.execute("INSERT INTO t VALUES ('new')")
        store.commit()
        second = there.snapshot("x")
    pairs = zip(first["blocks"], second["blocks"], strict=False)
    assert len(first["blocks"]) == -(-first["size"] // BLOCK) > 4
    assert 1 <= sum(one != other for one, other in pairs) <= 3
    copy = tmp_path / "run" / "outbox" / "rollouts.db"
    with sqlite3.connect(copy) as store:
        assert store.execute("SELECT count(*) FROM t").fetchone() == (1001,)


def test_a_client_that_died_is_replaced_and_one_that_lives_is_not(
    there: RunServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert there.hello("first")["state"] == "none"
    there.hello("second")  # no process serves the first any more
    serving = "agentgym.plugins.cloud.elsewhere.run_server._is_serving"
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
        {"op": "put", "name": "x", "offset": 0, "size": 3},
        {"op": "have", "name": "x"},
    ]
    questions = b"".join(
        json.dumps(each).encode() + b"\n" + b"abc"[: each.get("size", 0)]
        for each in asked
    )
    answers = io.BytesIO()
    serve(there, io.BytesIO(questions), answers)
    found = [json.loads(line) for line in answers.getvalue().splitlines()]
    assert found[0]["kind"] == "ValueError"
    assert [each["found"] for each in found[1:]] == [3, 3]


def test_a_run_is_removed_after_the_answer_that_allows_it(
    there: RunServer, tmp_path: Path
) -> None:
    """A rented machine may end at once after this, and its client waits for it."""
    (tmp_path / "run" / "attempt-1").mkdir()
    seen: list[bool] = []

    class Answers(io.BytesIO):
        def flush(self) -> None:
            seen.append((tmp_path / "run" / "attempt-1").exists())

    finish, more = b'{"op": "finish"}\n', b'{"op": "have", "name": "x"}\n'
    serve(there, io.BytesIO(finish + more), Answers())
    assert (seen, (tmp_path / "run").exists()) == ([True], False)


def test_a_line_of_any_length_is_told(there: RunServer, tmp_path: Path) -> None:
    attempt = tmp_path / "run" / "attempt-1"
    attempt.mkdir()
    long = b"x" * 3_000_000
    (attempt / "progress.jsonl").write_bytes(b"one\n" + long + b"\ncut off")
    assert there.poll(4, 0)[1] == long + b"\n"
    assert there.poll(4 + len(long) + 1, 0)[1] == b""


def test_a_start_that_is_asked_for_twice_is_one(
    there: RunServer, tmp_path: Path
) -> None:
    (tmp_path / "run" / "attempt-1").mkdir()
    assert there.start(1, b"")["attempt"] == 1
    assert not (tmp_path / "run" / "attempt-2").exists()
