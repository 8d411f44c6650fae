"""Rewards from one's own functions, checked before they count."""

import inspect
import math
from collections.abc import Awaitable, Callable

from agentgym.core.task import Task
from agentgym.core.trajectory import Reward, Trajectory
from agentgym.errors import RewardError
from agentgym.rollout.solo.toolbox.functions import call_in_thread
from agentgym.scenarios.scoring import reward_problem

RewardFunction = Callable[
    [Task, Trajectory], float | Reward | Awaitable[float] | Awaitable[Reward]
]
"""``reward(task, trajectory)``, sync or async; a number, or a :class:`Reward`."""


async def function_reward(
    function: RewardFunction, task: Task, trajectory: Trajectory
) -> tuple[float, Reward | None]:
    """Score a rollout with a function; a sync one runs in a thread.

    Returns:
        The value, and the rest of a :class:`Reward` if the function returned one.

    Raises:
        RewardError: It raised, or returned no finite number.
    """
    try:
        if inspect.iscoroutinefunction(function):
            found = await function(task, trajectory)
        else:
            found = await call_in_thread(function, task, trajectory)
            if inspect.isawaitable(found):
                found = await found
    except Exception as error:  # the user's own function
        raise RewardError(f"{type(error).__name__}: {error}") from error
    if isinstance(found, Reward):
        problem = reward_problem(found, (-math.inf, math.inf))
        if problem:
            raise RewardError(f"the reward function returned {problem}")
        return float(found.value), found
    if not isinstance(found, int | float) or not math.isfinite(found):
        raise RewardError(f"the reward function returned {found!r}, no finite number")
    return float(found), None
