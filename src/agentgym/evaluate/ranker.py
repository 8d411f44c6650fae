"""Ranker: let a judge, a model, rank the attempts at a task; without one, nothing.

Judges are a plug-in: its functions are found by name when ``judge.model`` is set.
"""

from collections.abc import Callable, Sequence
from typing import Any

from agentgym.core.config import TrainingConfig
from agentgym.core.ledger import Judging, Ledger
from agentgym.core.nested.groups import JudgeSettings
from agentgym.core.trajectory import Trajectory
from agentgym.errors import UsageError
from agentgym.evaluate.events import Observer
from agentgym.plugins import registered

_JUDGE = "agentgym.judge"
_SETTINGS = ("rubric", "price_in", "price_out", "max_cost")


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
    judge: JudgeSettings,
    ledger: Ledger,
    progress: Observer,
    *,
    beat: Callable[[], None] = lambda: None,
) -> Ranker:
    """Create a run's judge, which counts its requests in ``ledger.judging``."""
    if judge.model is None:
        return Ranker()
    made: Ranker = registered(_JUDGE, "open")(judge, ledger, progress, beat=beat)
    return made


def check_judge(config: TrainingConfig) -> None:
    """Check the settings of a judge, without sending a request."""
    judge = config.judge
    given = [name for name in _SETTINGS if getattr(judge, name) not in (None, "")]
    if judge.model is None and given:
        raise UsageError(
            f"judge.{', judge.'.join(given)} without a judge: name its model with "
            "--judge, as in --judge openai:gpt-4.1-mini."
        )
    if judge.model is not None:
        registered(_JUDGE, "check")(config)


def plan_words(config: TrainingConfig) -> str:
    """Describe how often a run may ask its judge, and the price; "" without one."""
    if config.judge.model is None:
        return ""
    return str(registered(_JUDGE, "plan_words")(config))


def judging_words(record: Judging) -> str:
    """Describe a judge's counts, its agreement with the scenario, and its cost."""
    return str(registered(_JUDGE, "judging_words")(record))
