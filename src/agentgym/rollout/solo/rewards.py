"""Score trajectories with a user's reward function, and check its results."""

import math
from collections.abc import Awaitable, Callable

from agentgym.core.background import call
from agentgym.core.task import Task
from agentgym.core.trajectory import (
    MOST_REWARD,
    Reason,
    Reward,
    RolloutStatus,
    Trajectory,
)
from agentgym.errors import RewardError
from agentgym.integrations.episode import Episode
from agentgym.integrations.run import Ending
from agentgym.scenarios.base import Environment
from agentgym.scenarios.scoring import reward_problem

RewardFunction = Callable[
    [Task, Trajectory], float | Reward | Awaitable[float] | Awaitable[Reward]
]
"""``reward(task, trajectory)``, sync or async; returns a number or a Reward."""


class FunctionEnding(Ending):
    """Scores trajectories with the user's reward function.

    If ``function`` is None, there is no reward. A rollout without an answer fails. A
    function that is not async runs in a thread.
    """

    def __init__(self, function: RewardFunction | None) -> None:
        self._function = function

    async def score(
        self, episode: Episode, environment: Environment, trajectory: Trajectory
    ) -> Trajectory:
        """Return the trajectory with the reward of the user's function.

        Raises:
            RewardError: The function raised an error, or its reward is invalid.
        """
        if trajectory.reason is None and not trajectory.answer:
            trajectory.status = RolloutStatus.FAILED
            trajectory.reason = Reason(kind="empty answer")
        if self._function is None:
            return trajectory
        try:
            found = await call(self._function, episode.task, trajectory)
        except Exception as error:  # user code
            raise RewardError(f"{type(error).__name__}: {error}") from error
        if isinstance(found, Reward):
            if problem := reward_problem(found, (-math.inf, math.inf)):
                raise RewardError(f"the reward function returned {problem}")
            return trajectory.scored(found)
        if not isinstance(found, int | float) or not math.isfinite(found):
            raise RewardError(
                f"the reward function returned {found!r}, no finite number"
            )
        if abs(found) > MOST_REWARD:
            raise RewardError(
                f"the reward function returned {found!r}, and {MOST_REWARD:g} is the "
                "most: scale it"
            )
        return trajectory.model_copy(update={"reward": float(found)})
