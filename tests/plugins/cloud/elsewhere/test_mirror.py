"""Mirror: what another machine names is written below the run's folder only."""

import hashlib
import json
from pathlib import Path
from typing import Any, cast

import pytest

from agentgym import TrainingConfig
from agentgym.errors import ComputeError
from agentgym.plugins.cloud.elsewhere.channel import Channel
from agentgym.plugins.cloud.elsewhere.mirror import Mirror, Transfers
from agentgym.train.run_folder import RunFolder


class Liar:
    """Stands where the channel to a machine does, and offers files elsewhere."""

    def __init__(self, **files: Any) -> None:
        self._files = {"others": {}, "checkpoints": {}, "all": [], **files}

    def ask(self, op: str, payload: bytes = b"", **_: Any) -> tuple[Any, bytes]:
        """Answer as a machine would."""
        if op == "files":
            return self._files, b""
        return {"size": 0}, b"theirs" if op == "get" else b""


@pytest.mark.parametrize("name", ["../../stolen", "/tmp/../{}/stolen", "", "a/../../b"])
@pytest.mark.parametrize("kind", ["others", "checkpoints", "inside", "agent"])
def test_names_that_lead_out_of_the_run_are_refused(
    tmp_path: Path, name: str, kind: str
) -> None:
    name = name.format(tmp_path)
    run = RunFolder.create(TrainingConfig.create(output=tmp_path / "runs", name="x"))
    before = sorted(tmp_path.rglob("*"))
    files = {
        "others": {"others": {name: 6}},
        "checkpoints": {"checkpoints": {name: {"a": 6}}},
        "inside": {"checkpoints": {"step-000001": {name: 6}}},
    }
    channel = cast(Channel, Liar(**files.get(kind, {})))
    mirror = Mirror(channel, run, lambda: None)
    with pytest.raises(ComputeError, match="outside of the run's folder"):
        mirror.pull_agent({name: 6}) if kind == "agent" else mirror.pull()
    mirror.forget_parts()
    assert sorted(tmp_path.rglob("*")) == before


class There:
    """Stands where the channel does: a machine with one checkpoint, of step 0."""

    def __init__(self, state: dict[str, Any]) -> None:
        self.state = json.dumps(state).encode()
        self.have: Any = None

    def ask(self, op: str, payload: bytes = b"", **more: Any) -> tuple[Any, bytes]:
        """Answer as a machine would."""
        if op == "files":
            self.have = more["have"]
            sizes = {"state.json": len(self.state)}
            found = {"others": {}, "all": ["step-000000"]}
            return {**found, "checkpoints": {"step-000000-abc": sizes}}, b""
        if op == "get" and more["path"].endswith("state.json"):
            return None, self.state[more["offset"] :][: more["length"]]
        return {"size": 0}, b""


def state(**parts: Any) -> dict[str, Any]:
    none = {"warm_start": None, "warmed": {}, "first_validation": None}
    return {"step": 0, "baseline": {"test": 1}, **none, **parts}


def with_first_checkpoint(tmp_path: Path, found: dict[str, Any]) -> RunFolder:
    run = RunFolder.create(TrainingConfig.create(output=tmp_path / "runs", name="x"))
    folder = run.path / "checkpoints" / "step-000000"
    folder.mkdir(parents=True)
    (folder / "state.json").write_text(json.dumps(found))
    return run


def test_the_checkpoint_of_a_warm_start_replaces_that_before_it(tmp_path: Path) -> None:
    run = with_first_checkpoint(tmp_path, state())
    there = There(state(warm_start={"tasks": 8}))
    mirror = Mirror(cast(Channel, there), run, lambda: None)
    assert mirror.continues_local()
    mirror.pull()
    [folder] = run.checkpoints()
    assert there.have == {"step-000000": version_of(state())}
    assert (folder / "state.json").read_bytes() == there.state


@pytest.mark.parametrize(
    "theirs", [state(), state(baseline={"test": 2}, warm_start={"tasks": 8})]
)
def test_what_came_before_or_differs_does_not_continue(
    tmp_path: Path, theirs: dict[str, Any]
) -> None:
    mine = state() if theirs != state() else state(warm_start={"tasks": 8})
    run = with_first_checkpoint(tmp_path, mine)
    mirror = Mirror(cast(Channel, There(theirs)), run, lambda: None)
    assert not mirror.continues_local()


def version_of(found: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(found).encode()).hexdigest()[:12]


def test_the_largest_transfer_at_the_present_speed() -> None:
    transfers = Transfers()
    assert transfers.longest_s is None
    transfers.note(0, 5.0)  # nothing came
    assert transfers.longest_s is None
    transfers.note(100_000_000, 10.0)
    assert transfers.longest_s == pytest.approx(10.0)
    transfers.note(1_000, 1.0)  # a small one says nothing of the speed
    assert transfers.longest_s == pytest.approx(11.0, abs=0.1)
    transfers.note(50_000_000, 50.0)  # the network became slow
    assert transfers.longest_s == pytest.approx(100.0)
    for _ in range(20):
        transfers.note(50_000_000, 5.0)
    assert 10.0 < transfers.longest_s < 20.0
