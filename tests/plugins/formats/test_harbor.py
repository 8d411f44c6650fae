"""Harbor's task folders in the sandbox, and why others are left out."""

import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agentgym.core.task import Split
from agentgym.core.trajectory import Trajectory
from agentgym.errors import UsageError
from agentgym.plugins.formats.harbor import HarborScenario
from agentgym.rollout import run_rollouts_sync
from agentgym.scenarios.registry import get_scenario
from tests.rollout.scripted_llm import calling, saying

FILE = "environment/Dockerfile"
DOCKER = "FROM python:3.12-slim\nWORKDIR /app\nCOPY names.txt data/ ./\n"
TEST = """#!/bin/bash
# Sorted, one name a line.
if diff <(sort /app/names.txt) /app/sorted.txt; then
  echo 1 > /logs/verifier/reward.txt
else
  echo 0 > /logs/verifier/reward.txt
fi
"""
needs_bubblewrap = pytest.mark.skipif(
    shutil.which("bwrap") is None, reason="bubblewrap is not installed"
)


def task(folder: Path, name: str = "sort", **changed: str) -> Path:
    """Write a task's folder as Harbor has it."""
    files = {
        "instruction.md": "Write the sorted lines of names.txt to sorted.txt.",
        "task.toml": 'version = "1.0"\n[metadata]\ncategory = "files"\n',
        FILE: DOCKER,
        "environment/names.txt": "b\na\n",
        "environment/data/more.txt": "more\n",
        "tests/test.sh": TEST,
    }
    for path, text in {**files, **changed}.items():
        place = folder / name / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
    return folder / name


def scenario(folder: Path) -> HarborScenario:
    made = get_scenario(f"harbor?data={folder}")
    assert isinstance(made, HarborScenario)
    return made


def rolled_out(folder: Path, *replies: Any) -> Trajectory:
    with closing(scenario(folder)) as found:
        tasks, llm = found.tasks(Split.TEST, 0, 9), saying(*replies)
        [made] = run_rollouts_sync(tasks, llm=llm, reward=found).trajectories
    return made


@pytest.mark.slow  # starts a sandbox
@needs_bubblewrap
@pytest.mark.parametrize(
    ("command", "reward"),
    [("sort names.txt > /app/sorted.txt", 1.0), ("cp names.txt sorted.txt", 0.0)],
)
def test_the_tests_of_a_task_judge_as_they_are(
    tmp_path: Path, command: str, reward: float
) -> None:
    made = rolled_out(task(tmp_path), calling("bash", command=command), "Done.")
    assert (made.reward, made.success) == (reward, reward == 1.0), made.reason
    assert list(made.changed_files) == ["sorted.txt"], "tests and logs stay hidden"


@pytest.mark.slow
@needs_bubblewrap
def test_tests_without_a_reward_drop_the_rollout(tmp_path: Path) -> None:
    changed: dict[str, Any] = {"tests/test.sh": "echo broken >&2\n"}
    made = rolled_out(task(tmp_path, **changed), "Done.")
    assert made.reward is None
    assert "wrote no reward" in str(made.reason)
    assert "broken" in str(made.reason)


@pytest.mark.parametrize(
    ("path", "text", "why"),
    [
        (FILE, "FROM ubuntu\nRUN apt-get install gcc", "RUN apt-get"),
        (FILE, "FROM ghcr.io/x/y:1", "needs the image ghcr.io/x/y:1"),
        ("environment/docker-compose.yaml", "", "several containers"),
        ("tests/test.sh", "curl x | sh", "tests/test.sh needs root or the network"),
        ("task.toml", "=", "cannot be read"),
    ],
)
def test_a_task_that_needs_more_is_named_with_what_could_run_it(
    tmp_path: Path, path: str, text: str, why: str
) -> None:
    other = task(tmp_path, "other", **{path: text})
    with pytest.raises(UsageError, match="None of the 1 tasks") as refused:
        scenario(other)
    assert why in str(refused.value)
    assert f"harbor run -p {other}" in str(refused.value)
    task(tmp_path)
    [note] = scenario(tmp_path).notes()
    assert note.startswith("other is left out: ")


def test_splits_share_no_task(tmp_path: Path) -> None:
    for number in range(8):
        task(tmp_path, f"t{number}")
    found = scenario(tmp_path)
    split = {s: {t.id for t in found.tasks(s, 0, 9)} for s in found.splits}
    sizes = {Split.TRAIN: 4, Split.VALIDATION: 2, Split.TEST: 2}
    assert {name: len(ids) for name, ids in split.items()} == sizes
    assert len(set.union(*split.values())) == 8
    assert found.tasks(Split.TRAIN, 0, 1)[0].family == "files"


def test_data_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="--data FOLDER"):
        get_scenario("harbor")
    with pytest.raises(UsageError, match=r"no folder with a task\.toml"):
        scenario(tmp_path)
