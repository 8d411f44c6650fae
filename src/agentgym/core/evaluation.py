"""Measuring a policy on tasks that it does not train on."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from agentgym.core.config import TrainingConfig
from agentgym.core.metrics import Metrics
from agentgym.core.plan import make_plan
from agentgym.core.progress import Progress
from agentgym.core.task import Split, Task
from agentgym.core.trajectory import RolloutStatus, Trajectory
from agentgym.engines.registry import create_engine
from agentgym.errors import ConfigError, RolloutError
from agentgym.rollout.runner import RolloutRequest
from agentgym.rollout.session import RolloutSession
from agentgym.scenarios.registry import get_scenario

_CRITERIA: dict[str, Callable[[Metrics], float]] = {
    "tool_reliability": lambda m: m.tool_reliability.value,
    "success_rate": lambda m: m.success_rate,
    "right_tool": lambda m: m.right_tool.value,
    "right_arguments": lambda m: m.right_arguments.value,
}
_REPORTED_ONLY = {"cost_reduction"}


@dataclass(frozen=True)
class Measurement:
    """A set of tasks to measure under a name."""

    name: str
    tasks: Sequence[Task]


def measure(
    session: RolloutSession,
    measurements: Sequence[Measurement],
    samples: int,
    on_rollout: Callable[[Trajectory], None],
    *,
    step: int = 0,
) -> dict[str, Metrics]:
    """Attempt every task ``samples`` times and return metrics by name.

    All sets run together, so that a small one does not leave the workers idle.

    Raises:
        RolloutError: Not one rollout of a set could be scored; says why.
    """
    attempts = [
        (m.name, task, f"{m.name.replace(' ', '_')}-t{index:04d}", sample)
        for m in measurements
        for index, task in enumerate(m.tasks)
        for sample in range(samples)
    ]
    requests = [
        RolloutRequest(
            rollout_id=f"{group}-{sample:02d}",
            task=task,
            train=False,
            group=group,
            step=step,
        )
        for _, task, group, sample in attempts
    ]
    trajectories = session.run(requests, on_rollout)
    session.forget(trajectories)
    by_name: dict[str, list[Trajectory]] = {m.name: [] for m in measurements}
    for (name, *_), trajectory in zip(attempts, trajectories, strict=True):
        by_name[name].append(trajectory)
    for name, found in by_name.items():
        if all(t.status is RolloutStatus.DROPPED for t in found):
            raise RolloutError(
                f"None of the {len(found)} rollouts of {name!r} could be scored: "
                f"{found[0].reason}."
            )
    return {name: Metrics.of(found, k=samples) for name, found in by_name.items()}


def criteria_hold(criteria: dict[str, float], metrics: Metrics) -> bool:
    """Say whether ``metrics`` reach every criterion that training waits for.

    Raises:
        ConfigError: A criterion has no metric.
    """
    unknown = set(criteria) - set(_CRITERIA) - _REPORTED_ONLY
    if unknown:
        raise ConfigError(
            f"No metric for the success criteria {sorted(unknown)}; known: "
            f"{sorted([*_CRITERIA, *_REPORTED_ONLY])}."
        )
    return all(
        _CRITERIA[name](metrics) >= lowest
        for name, lowest in criteria.items()
        if name in _CRITERIA
    )


def evaluate(config: TrainingConfig, split: Split, progress: Progress) -> Metrics:
    """Measure ``config.model`` on tasks of ``split``; leaves no files behind.

    Raises:
        UsageError: A setting cannot work.
        RolloutError: Not one rollout could be scored.
    """
    plan = make_plan(config)
    scenario = get_scenario(config.scenario)
    tasks = scenario.tasks(split, config.seed, config.test_tasks)
    engine = create_engine(config)
    try:
        with (
            TemporaryDirectory(prefix="agentgym-eval-") as folder,
            RolloutSession(
                config, engine.policy, Path(folder), plan.workers
            ) as session,
        ):
            progress.phase("evaluation", len(tasks) * config.eval_samples)
            found = measure(
                session,
                [Measurement(split.value, tasks)],
                config.eval_samples,
                lambda _: progress.rollout_done(),
            )
    finally:
        engine.close()
    return found[split.value]
