"""Curves of a run: TensorBoard by default, Weights & Biases if asked."""

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from agentgym.core.config import TrainingConfig
from agentgym.evaluate.metrics import Metrics
from agentgym.evaluate.progress import StepReport
from agentgym.integrations.registry import require

_NEEDS = {"tensorboard": "local", "wandb": "wandb"}
"""The extra that brings the library of each tracker, which has its name."""


class Tracker(Protocol):
    """Takes a step's numbers."""

    def log(self, report: StepReport, validation: Metrics | None) -> None:
        """Record the numbers of one step, and of the validation if it had one."""


class NoTracker:
    """Records nothing."""

    def log(self, report: StepReport, validation: Metrics | None) -> None:
        """Ignore the step."""


class TensorBoardTracker:
    """Writes event files below ``folder``."""

    def __init__(self, folder: Path) -> None:
        from tensorboard.summary import Writer

        self._writer = Writer(str(folder))

    def log(self, report: StepReport, validation: Metrics | None) -> None:
        """Write each number as a scalar."""
        for name, value in _scalars(report, validation).items():
            self._writer.add_scalar(name, value, report.step)
        self._writer.flush()

    def close(self) -> None:
        """Finish the event file."""
        self._writer.close()


class WandbTracker:
    """Sends the numbers to Weights & Biases."""

    def __init__(self, config: TrainingConfig, run: Path) -> None:
        import wandb

        self._run = wandb.init(
            project="agentgym",
            name=run.name,
            id=run.name,
            dir=str(run),
            resume="allow",
            config=config.model_dump(mode="json"),
        )

    def log(self, report: StepReport, validation: Metrics | None) -> None:
        """Send each number."""
        self._run.log(_scalars(report, validation), step=report.step)

    def close(self) -> None:
        """Finish the run there."""
        self._run.finish()


def require_tracker(name: str) -> None:
    """Check that the library of a tracker is installed, without importing it.

    Raises:
        MissingExtraError: Names the extra and the install command.
    """
    if name in _NEEDS:
        require([name], _NEEDS[name], f"--tracker {name}")


@contextmanager
def open_tracker(config: TrainingConfig, run: Path) -> Iterator[Tracker]:
    """Yield the tracker that ``config`` asks for.

    Raises:
        MissingExtraError: Its library is not installed.
    """
    require_tracker(config.tracker)
    if config.tracker == "none":
        yield NoTracker()
        return
    tracker: TensorBoardTracker | WandbTracker = (
        WandbTracker(config, run)
        if config.tracker == "wandb"
        else TensorBoardTracker(run / "tensorboard")
    )
    try:
        yield tracker
    finally:
        tracker.close()


def _scalars(report: StepReport, validation: Metrics | None) -> dict[str, float]:
    numbers = {f"train/{k}": float(v) for k, v in dataclasses.asdict(report).items()}
    if validation is not None:
        numbers["validation/success_rate"] = validation.pass_1.value
        numbers["validation/tool_reliability"] = validation.tool_reliability.value
        numbers["validation/right_tool"] = validation.right_tool.value
        numbers["validation/right_arguments"] = validation.right_arguments.value
    return numbers
