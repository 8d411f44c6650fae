"""Made-up runs for tests of what people see."""

from collections import Counter
from pathlib import Path
from typing import Any

from agentgym.core.config import TrainingConfig
from agentgym.core.ledger import Ledger, RoleLedger
from agentgym.core.openai import DEFAULT_AGENT
from agentgym.core.trajectory import ModelCall, ToolCall, Trajectory
from agentgym.evaluate.call_classes import CallClass, ConfusionMatrix
from agentgym.evaluate.events import Plan, StepReport
from agentgym.evaluate.intervals import Estimate
from agentgym.evaluate.metrics import Metrics
from agentgym.evaluate.result import Evaluation
from agentgym.train.export import Saved
from agentgym.train.result import Artifacts, TrainingResult


def estimate(value: float, spread: float = 0.04, n: int = 120) -> Estimate:
    """Return an estimate with an interval of ``spread`` to both sides."""
    return Estimate(value=value, low=value - spread, high=value + spread, n=n)


def metrics(level: float, *, k: int = 4, tasks: int = 120) -> Metrics:
    """Return metrics that are better the higher ``level`` (0..1) is."""
    share = estimate(level, min(level, 1 - level, 0.04), tasks)
    return Metrics(
        tasks=tasks,
        rollouts=tasks * k,
        dropped=0,
        k=k,
        right_tool=share,
        right_arguments=share,
        pass_1=share,
        pass_k=share,
        tool_reliability=share,
        reward=estimate(2 * level - 1, 0.05, tasks),
        model_calls=estimate(4 - 2 * level, 0.2, tasks),
        tokens=estimate(200 - 100 * level, 6, tasks),
    )


def plan(run: Path = Path("runs/demo"), **settings: object) -> Plan:
    """Return the plan of a run with ``settings``."""
    config = TrainingConfig.create(scenario="coding", **settings)
    return Plan(
        config=config,
        run=run,
        model="nano (1.1M parameters, full weights)",
        device="cpu",
        sandbox="bubblewrap",
        workers=2,
        steps=16,
        held_out=480,
        validations=15,
    )


def step(number: int, **changes: float) -> StepReport:
    """Return the report of a step that goes well, with ``changes``."""
    share = min(0.99, 0.3 + 0.02 * number)
    values = {
        "step": number,
        "episodes": 128 * number,
        "budget": 10_000,
        "reward": 2 * share - 1,
        "success_rate": share,
        "tool_reliability": min(1.0, share + 0.1),
        "loss": 0.02,
        "entropy": 0.4 - 0.002 * number,
        "kl": 0.01,
        "grad_norm": 0.7,
        "clip_fraction": 0.05,
        "trained_tokens": 5000,
        "skipped_groups": 3,
        "groups": 16,
        "dropped": 0,
        "sampled_tokens": 12_000,
        "rollout_seconds": 2.0,
        "update_seconds": 1.0,
        "tokens_per_second": 4000.0,
        "seconds_left": 3.0 * (79 - number),
    }
    return StepReport(**{**values, **changes})  # type: ignore[arg-type]


def ledger(**counts: Any) -> Ledger:
    """Return the counts of a single agent; without any, a ledger that adds up."""
    waste = {"masked": Counter(zero_variance=800), "dropped": Counter(timeout=200)}
    found = RoleLedger(**(counts or {"calls": 10_000, "trained": 9000, **waste}))
    return Ledger(**found.model_dump(), roles={DEFAULT_AGENT: found})


def result(run: Path = Path("runs/demo"), **changes: Any) -> TrainingResult:
    """Return the result of a run that went well, with some fields changed."""
    made = TrainingResult(
        scenario="coding",
        config=TrainingConfig.create(scenario="coding").model_dump(mode="json"),
        baseline=metrics(0.52),
        metrics=metrics(0.97),
        breakdown={
            "level 3": (metrics(0.1, tasks=40), metrics(0.3, tasks=40)),
            "out of vocabulary": (metrics(0.2, tasks=60), metrics(0.4, tasks=60)),
        },
        stopped="success criteria reached",
        steps=31,
        weights_step=31,
        episodes=3968,
        device="CPU (2 cores)",
        wall_seconds=251,
        cpu_seconds=468,
        peak_memory_mb=1830,
        ledger=ledger(),
        saved=Saved(name="coding@1", is_default=True, reason="it is the first version"),
        artifacts=Artifacts(run=run, agent=run / "agent"),
    )
    return made.model_copy(update=changes)


def evaluation(level: float, *, tasks: int = 12, samples: int = 4) -> Evaluation:
    """Return an evaluation that is better the higher ``level`` (0..1) is."""
    made = [
        Trajectory(
            rollout_id=f"test-t{task:04d}-{sample:02d}",
            scenario="coding",
            task_id=f"task {task}",
            steps=[
                ModelCall(prompt_ids=[0] * 9, response_ids=[0] * 5),
                ToolCall(name="read_file", arguments={"path": "a"}),
            ],
            reward=float(_succeeds(level, task, sample)),
            success=_succeeds(level, task, sample),
            right_tool=1.0,
            right_arguments=level,
        )
        for task in range(tasks)
        for sample in range(samples)
    ]
    confusion = ConfusionMatrix(
        tools=["read_file", "lint"],
        counts={
            "read_file": {"read_file": 40, "(no call)": 8},
            "(nothing)": {"lint": 8},
        },
    )
    return Evaluation(
        subject="somebody",
        scenario="coding",
        split="test",
        seed=0,
        samples=samples,
        framework="native",
        metrics=Metrics.of(made, k=samples),
        baselines={"do-nothing": metrics(0.0, k=1)},
        calls={CallClass.RIGHT: 40, CallClass.UNNEEDED: 8},
        confusion=confusion,
    )


def _succeeds(level: float, task: int, sample: int) -> bool:
    return (7 * task + 3 * sample) % 10 < 10 * level
