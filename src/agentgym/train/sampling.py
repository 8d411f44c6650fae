"""Sampling: the kind of a run's training rollouts, whole episodes or less."""

from collections.abc import Sequence
from typing import Any

from agentgym.core.config import TrainingConfig
from agentgym.core.trajectory import Trajectory
from agentgym.plugins import registered
from agentgym.rollout.runner import RolloutRequest
from agentgym.scenarios.base import Scenario

_SAMPLING = "agentgym.sampling"


class Sampling:
    """Base class of the kinds of training rollouts. It samples whole episodes.

    Attributes:
        policy: The policy that answers the agents' requests.
        least_group: Least attempts at a task in a step; time limits do not make groups
            smaller. With fewer than four, the attempts in a group hardly ever differ in
            reward.
        wished_steps: Steps that a run should have time for; steps are made smaller for
            this. An app with three tools reached its goal in five steps of 32 rollouts
            (docs/models.md).
    """

    least_group = 4
    wished_steps = 8

    def __init__(self, policy: Any) -> None:
        self.policy = policy

    @property
    def is_whole(self) -> bool:
        """Whether rollouts are whole episodes."""
        return True

    @property
    def share(self) -> float:
        """A rollout's time, relative to that of a whole episode."""
        return 1.0

    def time(self, whole: float) -> None:
        """Measure ``share``; a whole episode takes ``whole`` seconds."""

    def begin(self, requests: Sequence[RolloutRequest]) -> None:
        """Prepare the rollouts that are requested next."""

    def credited(self, rollouts: Sequence[Trajectory]) -> list[Trajectory]:
        """Return the rollouts with the rewards to train on."""
        return list(rollouts)

    def learned(self, rollouts: Sequence[Trajectory]) -> None:
        """Look at a step's rollouts, to choose the kind of the next ones."""

    def score(self, tasks: Sequence[Any], look: str, attempts: int = 2) -> list[float]:
        """Return the credits of sampled answers on the way of each task; [] if none."""
        return []


def open_sampling(run: Any) -> Sampling:
    """Return the kind of a run's training rollouts; ``run`` is a ``RunContext``."""
    trained = run.engine.policy
    made: Sampling | None = registered(_SAMPLING, "open")(run, trained)
    return made or Sampling(trained)


def samples_calls(config: TrainingConfig, scenario: Scenario) -> bool:
    """Return whether a run's rollouts begin as single calls; check its settings."""
    return bool(registered(_SAMPLING, "samples_calls")(config, scenario))
