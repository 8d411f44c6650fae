"""Trackers get each step's numbers, and those of its validation."""

import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from agentgym import TrainingConfig
from agentgym.train.tracking import open_tracker
from tests.ui import made_up


def log_two_steps(tracker: str, run: Path) -> None:
    with open_tracker(TrainingConfig.create(tracker=tracker), run) as track:
        track(made_up.step(1), None)
        track(made_up.step(2), made_up.metrics(0.9))


def test_tensorboard_has_an_event_file(tmp_path: Path) -> None:
    log_two_steps("tensorboard", tmp_path)

    [events] = (tmp_path / "tensorboard").iterdir()
    written = events.read_bytes()
    assert written.count(b"train/reward") == 2
    assert written.count(b"validation/right_arguments") == 1


def test_wandb_goes_on_with_the_run_of_that_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[Any] = []

    class Run:
        def log(self, numbers: dict[str, float], step: int) -> None:
            said.append((step, numbers.get("validation/success_rate")))

        def finish(self) -> None:
            said.append("finished")

    def init(**options: Any) -> Run:
        said.append((options["id"], options["resume"]))
        return Run()

    wandb = ModuleType("wandb")
    wandb.__spec__ = ModuleSpec("wandb", None)
    wandb.init = init  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "wandb", wandb)

    log_two_steps("wandb", tmp_path / "run")

    assert said == [("run", "allow"), (1, None), (2, 0.9), "finished"]


def test_none_leaves_nothing(tmp_path: Path) -> None:
    log_two_steps("none", tmp_path)

    assert list(tmp_path.iterdir()) == []
