"""Rewards from one's own functions, checked before they count."""

import inspect
import math
from collections.abc import Awaitable, Callable

from agentgym.core.background import call_in_thread
from agentgym.core.task import Task
from agentgym.core.trajectory import Reason, Reward, RolloutStatus, Trajectory
from agentgym.errors import RewardError
from agentgym.integrations.episode import Episode
from agentgym.integrations.run import Ending
from agentgym.scenarios.base import Environment
from agentgym.scenarios.scoring import reward_problem

RewardFunction = Callable[
    [Task, Trajectory], float | Reward | Awaitable[float] | Awaitable[Reward]
]
"""``reward(task, trajectory)``, sync or async; a number, or a :class:`Reward`."""

_EMPTY_ANSWER = Reason(kind="empty answer")


class FunctionEnding(Ending):
    """Scores with a function, or not at all; an agent without an answer has failed.

    Args:
        function: A sync one runs in a thread.
    """

    def __init__(self, function: RewardFunction | None) -> None:
        self._function = function

    async def score(
        self, episode: Episode, environment: Environment, trajectory: Trajectory
    ) -> Trajectory:
        """Return the trajectory with the function's reward.

        Raises:
            RewardError: It raised, or returned no finite number.
        """
        if trajectory.reason is None and not trajectory.answer:
            trajectory.status = RolloutStatus.FAILED
            trajectory.reason = _EMPTY_ANSWER
        if self._function is None:
            return trajectory
        found = await _call(self._function, episode.task, trajectory)
        if isinstance(found, Reward):
            if problem := reward_problem(found, (-math.inf, math.inf)):
                raise RewardError(f"the reward function returned {problem}")
            return trajectory.scored(found)
        if not isinstance(found, int | float) or not math.isfinite(found):
            raise RewardError(
                f"the reward function returned {found!r}, no finite number"
            )
        return trajectory.model_copy(update={"reward": float(found)})


async def _call(function: RewardFunction, task: Task, trajectory: Trajectory) -> object:
    try:
        if inspect.iscoroutinefunction(function):
            return await function(task, trajectory)
        found = await call_in_thread(function, task, trajectory)
        return await found if inspect.isawaitable(found) else found
    except Exception as error:  # the user's own function
        raise RewardError(f"{type(error).__name__}: {error}") from error
