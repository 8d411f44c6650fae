"""Calculate the reward of an episode, and check that it is valid."""

import math

from agentgym.core.task import Task
from agentgym.core.trajectory import MOST_REWARD, Reward, Trajectory
from agentgym.errors import ScenarioError
from agentgym.scenarios.base import Environment, Scenario


def score(
    scenario: Scenario, task: Task, environment: Environment, trajectory: Trajectory
) -> Reward:
    """Return the scenario's reward for a finished episode, after a check."""
    reward = scenario.calculate_reward(task, environment, trajectory)
    problem = reward_problem(reward, scenario.reward_range)
    if problem:
        raise ScenarioError(f"calculate_reward of task {task.id} returned {problem}.")
    return reward


def reward_problem(reward: object, reward_range: tuple[float, float]) -> str:
    """Return why a value is not a valid reward; "" if it is valid."""
    if not isinstance(reward, Reward):
        return f"{reward!r}, which is no Reward"
    low, high = reward_range
    numbers = {
        "value": reward.value,
        "right_tool": reward.right_tool,
        "right_arguments": reward.right_arguments,
        **{f"part {name!r}": part for name, part in reward.parts.items()},
    }
    for name, number in numbers.items():
        if number is None and name.startswith("right_"):
            continue
        if not isinstance(number, int | float) or not math.isfinite(number):
            return f"{number!r} as its {name}, which is no finite number"
        if abs(number) > MOST_REWARD:
            return f"{number!r} as its {name}, and {MOST_REWARD:g} is the most"
    if not low <= reward.value <= high:
        return f"{reward.value!r}, outside reward_range ({low:g}, {high:g})"
    for name in ("right_tool", "right_arguments"):
        share = numbers[name]
        if share is not None and not 0.0 <= share <= 1.0:
            return f"{share!r} as its {name}, which is no share from 0 to 1"
    if not isinstance(reward.success, bool):
        return f"{reward.success!r} as its success, which is no bool"
    return ""
