"""Mirror: a run's files come home whole, and below the run's folder only."""

import json
import sqlite3
from pathlib import Path
from typing import Any, cast

import pytest

from agentgym import TrainingConfig
from agentgym.errors import ComputeError
from agentgym.plugins.cloud.remote import Mirror
from agentgym.plugins.cloud.run_server import BLOCK, RunServer
from agentgym.plugins.cloud.shell import Channel
from agentgym.train.run_folder import RunFolder


class There:
    """Stands where the channel to a machine does: the server answers in this process.

    ``lies`` are names of files that it offers besides.
    """

    def __init__(self, folder: Path, *lies: str) -> None:
        self.run, self._lies = folder / "runs" / "x", lies
        self.run.mkdir(parents=True)
        self._server = RunServer(folder)
        self.fetched = 0

    def ask(self, op: str, payload: bytes = b"", **more: Any) -> tuple[Any, bytes]:
        found, data = self._server.answer({"op": op, **more}, payload)
        if op == "stage":
            found["files"] |= dict.fromkeys(self._lies, (6, ["x"]))
        self.fetched += len(data)
        return found, data


def write_state(run: Path, step: int = 0, **parts: Any) -> None:
    folder = run / "checkpoints" / f"step-{step:06d}"
    folder.mkdir(parents=True, exist_ok=True)
    none = {"warm_start": None, "warmed": {}, "first_validation": None}
    found = {"step": step, "baseline": {"test": 1}, **none, **parts}
    new = folder / "state.new"  # as a new file, since the old one may be linked
    new.write_text(json.dumps(found))
    new.replace(folder / "state.json")


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder.create(TrainingConfig.create(output=tmp_path / "runs", name="x"))


def mirror(there: There, run: RunFolder) -> Mirror:
    return Mirror(cast(Channel, there), run, lambda: None)


def pull(home: Mirror) -> dict[str, Any]:
    found = home.fetch()
    home.place(found)
    return found


@pytest.mark.parametrize(
    "name", ["../../stolen", "/tmp/stolen", "checkpoints/../../stolen"]
)
def test_names_that_lead_out_of_the_run_are_refused(
    tmp_path: Path, run: RunFolder, name: str
) -> None:
    there = There(tmp_path / "there", name)
    with pytest.raises(ComputeError, match="outside of the run's folder"):
        mirror(there, run).fetch()
    assert not [*tmp_path.rglob("stolen"), *Path("/tmp").glob("stolen")]


def test_only_what_is_new_is_fetched(tmp_path: Path, run: RunFolder) -> None:
    there = There(tmp_path / "there")
    home = mirror(there, run)
    (there.run / "agent").mkdir()
    (there.run / "agent" / "model").write_text("half")
    (there.run / "metrics.jsonl").write_bytes(b"a" * BLOCK + b"first\n")
    with sqlite3.connect(there.run / "rollouts.db") as store:
        store.execute("CREATE TABLE t (x)")
        store.execute("INSERT INTO t VALUES (zeroblob(9000000))")
    for step in (1, 2):
        write_state(there.run, step)
    pull(home)
    assert not (run.path / "agent").exists()
    before, there.fetched = there.fetched, 0
    assert before > 9_000_000 + BLOCK
    (there.run / "checkpoints" / "step-000001" / "state.json").unlink()
    (there.run / "checkpoints" / "step-000001").rmdir()
    with (there.run / "metrics.jsonl").open("a") as file:
        file.write("second\n")
    (there.run / "result.json").write_text("{}")
    assert pull(home)["result"] == "{}"
    assert there.fetched < 100
    assert (run.path / "metrics.jsonl").read_bytes().endswith(b"first\nsecond\n")
    assert (run.path / "agent" / "model").read_text() == "half"
    assert [path.name for path in run.checkpoints()] == ["step-000002"]
    assert not (run.path / ".incoming").exists()


def test_a_broken_fetch_goes_on_where_it_stopped(
    tmp_path: Path, run: RunFolder
) -> None:
    there = There(tmp_path / "there")
    write_state(there.run, 1)
    (there.run / "checkpoints/step-000001/weights").write_bytes(b"w" * 3 * BLOCK)
    calls = iter([None, None, None, ComputeError("the connection broke")])

    def heed() -> None:
        if error := next(calls, None):
            raise error

    home = Mirror(cast(Channel, there), run, heed)
    with pytest.raises(ComputeError, match="broke"):
        pull(home)
    assert run.checkpoints() == []
    pull(home)
    assert there.fetched < 3 * BLOCK + 1000
    assert (run.checkpoints()[0] / "weights").stat().st_size == 3 * BLOCK


def test_a_checkpoint_that_was_written_again_replaces_that_before_it(
    tmp_path: Path, run: RunFolder
) -> None:
    there = There(tmp_path / "there")
    write_state(run.path)
    write_state(there.run, warm_start={"tasks": 8})
    pull(mirror(there, run))
    [folder] = run.checkpoints()
    assert json.loads((folder / "state.json").read_text())["warm_start"]
