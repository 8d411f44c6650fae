"""Write a run's metrics to a tracker: TensorBoard (default) or Weights & Biases."""

import dataclasses
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from agentgym.core.config import TrainingConfig
from agentgym.evaluate.events import StepReport
from agentgym.evaluate.metrics import MetricName, Metrics
from agentgym.integrations.registry import require

_NEEDS = {"tensorboard": "local", "wandb": "wandb"}
"""For each tracker, the pip extra that installs its library."""
_VALIDATED: tuple[MetricName, ...] = "tool_reliability", "right_tool", "right_arguments"

Track = Callable[[StepReport, Metrics | None], None]
"""A function that records a step's metrics, and its validation if there was one."""


def require_tracker(name: str) -> None:
    """Raise MissingExtraError if a tracker's library is not installed."""
    if name in _NEEDS:
        require([name], _NEEDS[name], f"--set tracker={name}")


@contextmanager
def open_tracker(config: TrainingConfig, run: Path) -> Iterator[Track]:
    """Yield a function that records steps in the configured tracker."""
    require_tracker(config.tracker)
    if config.tracker == "tensorboard":
        from tensorboard.summary import Writer

        with closing(Writer(str(run / "tensorboard"))) as writer:

            def write(report: StepReport, validation: Metrics | None) -> None:
                for name, value in _scalars(report, validation).items():
                    writer.add_scalar(name, value, report.step)
                writer.flush()

            yield write
    elif config.tracker == "wandb":
        import wandb

        there = wandb.init(
            project="agentgym",
            name=run.name,
            id=run.name,
            dir=str(run),
            resume="allow",
            settings={"console": "off"} if config.private else None,
            config=config.model_dump(mode="json"),
        )
        try:
            yield lambda report, validation: there.log(
                _scalars(report, validation), step=report.step
            )
        finally:
            there.finish()
    else:
        yield lambda report, validation: None


def _scalars(report: StepReport, validation: Metrics | None) -> dict[str, float]:
    known = {k: v for k, v in dataclasses.asdict(report).items() if v is not None}
    numbers = {f"train/{name}": float(value) for name, value in known.items()}
    if validation is not None:
        numbers["validation/success_rate"] = validation.pass_1.value
        for name in _VALIDATED:
            numbers[f"validation/{name}"] = validation[name].value
    return numbers
