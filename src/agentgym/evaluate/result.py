"""Evaluation: the results of measuring an agent, and how it was measured."""

from datetime import datetime
from pathlib import Path
from typing import Any, Self

from pydantic import Field

from agentgym.core.files import write_atomically
from agentgym.core.ledger import Judging
from agentgym.core.notebook import Shown
from agentgym.core.prices import Prices
from agentgym.core.records import FrozenRecord
from agentgym.core.trajectory import Reason
from agentgym.errors import UsageError, unreadable
from agentgym.evaluate.call_classes import CallClass, ConfusionMatrix
from agentgym.evaluate.metrics import Metrics
from agentgym.version import __version__

EVALUATION_VERSION = 1


class AttemptResult(FrozenRecord):
    """The result of one rollout."""

    rollout_id: str  # with the evaluation's seed, it gives the rollout's seed
    task_id: str
    status: str  # succeeded, failed or dropped
    reason: Reason | None
    reward: float | None  # None for a dropped rollout; its calls are not counted
    calls: dict[CallClass, int] = Field(default_factory=dict)


class Evaluation(Shown, FrozenRecord):
    """The results of an agent on a set of tasks.

    Attributes:
        version: Version of this format; a newer version is an error.
        agentgym: Version of agentgym that measured.
        created: Time of the measurement in ISO 8601.
        subject: Name of the measured model, or name and version of a trained agent.
        seed: Seed of the tasks and attempts.
        samples: Number of attempts per task.
        framework: The framework of the agent, e.g. ``langchain``.
        endpoint: Base URLs of the servers that answered, comma-separated; None if the
            model ran in this process.
        cached: Number of model requests that were answered from the cache. The other
            figures include them.
        prices: Prices of the model's tokens; None if unknown.
        settings: All settings of the rollouts.
        task_digest: Digest of the tasks, with which a comparison notices that tasks of
            the same ids changed; empty in files of old versions.
        notes: Remarks on the limits of the figures, in sentences.
        metrics: The metrics, with the results of each task.
        variants: The metrics of the same tasks under other conditions, by name.
        judging: How often judge and scenario agree, and the judge's cost; None without
            a judge.
        baselines: Metrics of agents without a model on the same tasks, by name.
        calls: Number of tool calls in scored rollouts, by class. Each call has exactly
            one class.
        confusion: Counts of calls by needed tool and called tool; None if the needed
            calls are unknown.
    """

    version: int = Field(default=EVALUATION_VERSION, ge=1, le=EVALUATION_VERSION)
    agentgym: str = __version__
    created: str = Field(
        default_factory=lambda: datetime.now().astimezone().isoformat("T", "seconds")
    )
    subject: str
    scenario: str
    split: str
    seed: int
    samples: int
    framework: str
    endpoint: str | None = None
    cached: int = 0
    prices: Prices | None = None
    settings: dict[str, Any] = Field(default_factory=dict)
    task_digest: str = ""
    notes: list[str] = Field(default_factory=list)
    metrics: Metrics
    variants: dict[str, Metrics] = Field(default_factory=dict)
    judging: Judging | None = None
    baselines: dict[str, Metrics] = Field(default_factory=dict)
    calls: dict[CallClass, int] = Field(default_factory=dict)
    confusion: ConfusionMatrix | None = None
    attempts: list[AttemptResult] = Field(default_factory=list)

    def save(self, path: Path) -> Path:
        """Write the evaluation as JSON, for ``agentgym eval --compare``."""
        write_text(path, self.model_dump_json(indent=2) + "\n")
        return path

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read an evaluation from a file that :meth:`save` wrote."""
        try:
            return cls.model_validate_json(path.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise UsageError(
                f"{path} is not a saved evaluation ({unreadable(error)}). `agentgym "
                "eval SCENARIO --save FILE` writes one."
            ) from None


def write_text(path: Path, text: str) -> None:
    """Write a text atomically, with secrets redacted, or raise UsageError."""
    try:
        write_atomically(path, text, private=False)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}.") from None
