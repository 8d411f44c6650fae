"""``agentgym runs export``: a run's rollouts in formats of other tools."""

import json
from pathlib import Path

import pytest

from agentgym.rollout import read_jsonl
from agentgym.rollout.store.store import Store
from tests.cli.conftest import Command
from tests.plugins.view.made_run import fill, make_run


@pytest.fixture
def run(tmp_path: Path) -> Path:
    made = make_run(tmp_path / "runs" / "demo", result=True)
    with Store(made.path / "rollouts.db") as store:
        fill(store)
    return made.path


def test_every_format_has_the_ended_rollouts(
    agentgym: Command, run: Path, tmp_path: Path
) -> None:
    for form in ("atif", "openai", "jsonl"):
        target = tmp_path / f"out.{form}"
        ended = agentgym("runs", "export", str(run), str(target), "--format", form)
        assert ended.code == 0
        lines = [json.loads(line) for line in target.read_text().splitlines()]
        assert f"4 rollouts are in {target}" in ended.out
        assert len(lines) >= 4
    assert {made.scenario for made in read_jsonl(tmp_path / "out.jsonl")} == {"coding"}


def test_a_part_of_them_and_bad_input(
    agentgym: Command, run: Path, tmp_path: Path
) -> None:
    target = tmp_path / "out.jsonl"
    ended = agentgym("runs", "export", str(run), str(target), "--only", "nothing")
    assert ended.code == 2
    assert "has no ended rollout whose id has 'nothing'" in ended.err
    assert not target.exists()
    target.write_text("mine")
    ended = agentgym("runs", "export", str(run), str(target))
    assert (ended.code, target.read_text()) == (2, "mine")
    assert "exists: give another file" in ended.err
