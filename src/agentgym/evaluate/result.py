"""Evaluation: the results of measuring an agent, and how they were measured."""

from datetime import datetime
from pathlib import Path
from typing import Any, Self

from pydantic import BaseModel, Field

from agentgym.core.files import write_atomically
from agentgym.core.ledger import Judging
from agentgym.core.trajectory import Reason
from agentgym.errors import UsageError
from agentgym.evaluate.calls import CallClass, ConfusionMatrix
from agentgym.evaluate.metrics import Metrics, Prices
from agentgym.version import __version__

EVALUATION_VERSION = 1


class AttemptResult(BaseModel, frozen=True, extra="forbid"):
    """The result of one rollout."""

    rollout_id: str  # its seed is derived from it and the seed
    task_id: str
    status: str  # succeeded, failed or dropped, and why
    reason: Reason | None
    reward: float | None  # None for a dropped rollout, which has no calls either
    calls: dict[CallClass, int] = Field(default_factory=dict)


class Evaluation(BaseModel, frozen=True, extra="forbid"):
    """The results of an agent on a set of tasks.

    Attributes:
        version: Version of this format; a newer one is refused.
        agentgym: Version of the measuring package; ``created`` is ISO 8601.
        subject: The measured model, by the user's name, or agent, with its version.
        scenario: The scenario; ``split``, ``seed`` and ``samples`` define the tasks and
            attempts.
        framework: The framework of the agent loop.
        endpoint: Base URLs of the servers that answered, comma-separated; None for this
            process.
        cached: Number of model requests answered from the cache; all figures include
            them.
        prices: Prices of the model's tokens; None if unknown.
        settings: Every setting of the rollouts.
        notes: Caveats about the figures, in sentences.
        metrics: The figures, per-task sums included.
        judging: The judge's agreement with the check, and its cost; None without a
            judge.
        baselines: Metrics of agents without a model on the same tasks, by name.
        calls: Number of tool calls of scored rollouts by class; they add up to all.
        confusion: Counts of called tools by needed tool; None if the needed calls are
            unknown.
        attempts: Every rollout.
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
    notes: list[str] = Field(default_factory=list)
    metrics: Metrics
    judging: Judging | None = None
    baselines: dict[str, Metrics] = Field(default_factory=dict)
    calls: dict[CallClass, int] = Field(default_factory=dict)
    confusion: ConfusionMatrix | None = None
    attempts: list[AttemptResult] = Field(default_factory=list)

    def save(self, path: Path) -> Path:
        """Write the evaluation as JSON, for ``agentgym eval --compare``.

        Raises:
            UsageError: The file cannot be written.
        """
        write_text(path, self.model_dump_json(indent=2) + "\n")
        return path

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a file of :meth:`save`.

        Raises:
            UsageError: The file does not exist, or is not an evaluation.
        """
        try:
            return cls.model_validate_json(path.read_text(encoding="utf-8"))
        except OSError as error:
            raise UsageError(f"{path} cannot be read: {error.strerror}.") from None
        except ValueError as error:
            reason = str(error).splitlines()[0]
            raise UsageError(
                f"{path} is not a saved evaluation ({reason}). `agentgym eval SCENARIO "
                "--save FILE` writes one."
            ) from None


def write_text(path: Path, text: str) -> None:
    """Write a file, atomically.

    Raises:
        UsageError: It cannot be written.
    """
    try:
        write_atomically(path, text, private=False)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}.") from None
