"""Ranker: let a judge, a model, rank the attempts at a task; without one, nothing.

Judges are a plug-in: its functions are found by name.
"""

from collections.abc import Callable, Sequence
from typing import Any

from agentgym.core.config import TrainingConfig
from agentgym.core.ledger import Judging, Ledger
from agentgym.core.trajectory import Trajectory
from agentgym.evaluate.events import Observer
from agentgym.plugins import registered

_JUDGE = "agentgym.judge"


class Ranker:
    """Base class of rankers. It changes no rewards, and serves runs without a judge.

    Attributes:
        verdicts: By rollout id, ``score`` and ``why`` of each attempt that the last
            call of ``ranked`` or ``compare`` judged.
    """

    def __init__(self) -> None:
        self.verdicts: dict[str, dict[str, Any]] = {}

    def ranked(self, groups: Sequence[Sequence[Trajectory]]) -> list[list[Trajectory]]:
        """Return the groups with the judge's ranking added to the rewards.

        A group has the attempts at one task. Only the rewards of accepted attempts
        change: those that the scenario scored as successful. The ranking becomes a
        further part of their reward, ``judge``. Without a judge, nothing changes.
        """
        return list(map(list, groups))

    def compare(self, groups: Sequence[Sequence[Trajectory]]) -> None:
        """Record how often judge and scenario agree; change no rewards."""


def open_judge(
    config: TrainingConfig,
    ledger: Ledger,
    progress: Observer,
    *,
    beat: Callable[[], None] = lambda: None,
) -> Ranker:
    """Create a run's judge, which counts its requests in ``ledger.judging``."""
    made: Ranker | None = registered(_JUDGE, "open")(
        config, ledger, progress, beat=beat
    )
    return made or Ranker()


def is_judged(config: TrainingConfig) -> bool:
    """Return whether a run has a judge."""
    return bool(registered(_JUDGE, "is_judged")(config))


def check_judge(config: TrainingConfig) -> None:
    """Check the settings of a judge, without sending a request."""
    registered(_JUDGE, "check")(config)


def plan_words(config: TrainingConfig) -> str:
    """Describe how often a run may ask its judge, and the price; "" without one."""
    return str(registered(_JUDGE, "plan_words")(config))


def judging_words(record: Judging) -> str:
    """Describe a judge's counts, its agreement with the scenario, and its cost."""
    return str(registered(_JUDGE, "judging_words")(record))
