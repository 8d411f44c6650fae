"""Evaluation: everything that measuring an agent gave, and how it was made."""

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

    rollout_id: str  # its random stream follows from it and the seed
    task_id: str
    status: str  # succeeded, failed or dropped, and why
    reason: Reason | None
    reward: float | None  # None for a dropped one, which has no calls either
    calls: dict[CallClass, int] = Field(default_factory=dict)


class Evaluation(BaseModel, frozen=True, extra="forbid"):
    """The results of an agent on a set of tasks, complete and comparable.

    Attributes:
        version: Of this format; a newer one is refused.
        agentgym: Version of the package that measured; ``created`` is ISO 8601.
        subject: The measured model or agent: a model as the user named it, an agent
            with its version.
        scenario: On what; ``split``, ``seed`` and ``samples`` say which tasks and
            how often each.
        framework: Whose agent loop.
        endpoint: Base URL of the server that answered, several with commas between
            them; None for this process.
        cached: Requests to the model that were answered from ``cache_requests`` of the
            settings; they are in all figures as if they had been made.
        prices: Of the model's tokens; None if they were not known.
        settings: Every setting of the rollouts.
        notes: Caveats for readers of the figures, in sentences.
        metrics: The figures, per-task sums included.
        judging: How far a judge agrees with the check, and for how much; None without.
        baselines: Of agents without a model, on the same tasks, by name.
        calls: Tool calls of scored rollouts by class; they add up to all of them.
        confusion: Which tool was called where which was needed; None if the
            scenario does not list the calls that tasks need.
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
        """Write the evaluation as JSON; ``agentgym eval --compare`` reads it.

        Raises:
            UsageError: The file cannot be written.
        """
        write_text(path, self.model_dump_json(indent=2) + "\n")
        return path

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read the file of :meth:`save`.

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
