"""Mirror: what another machine names is written below the run's folder only."""

from pathlib import Path
from typing import Any, cast

import pytest

from agentgym import TrainingConfig
from agentgym.compute.elsewhere.channel import Channel
from agentgym.compute.elsewhere.mirror import Mirror, Transfers
from agentgym.errors import ComputeError
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
