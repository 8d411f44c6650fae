"""Play calls in the shipped scenarios."""

from collections.abc import Sequence
from typing import Any

from agentgym import Split, Task
from agentgym.core.trajectory import Reward, Trajectory
from agentgym.evaluate.baselines import Call
from agentgym.evaluate.baselines import play as play_episode
from agentgym.packs.kit.tasks import GeneratedScenario
from agentgym.scenarios import Environment, Scenario

Calls = Sequence[tuple[str, dict[str, Any]]]


async def play(
    scenario: Scenario,
    task: Task,
    calls: Calls,
    *,
    environment: Environment | None = None,
) -> tuple[Trajectory, Reward]:
    """Make calls in an environment of a task, and score the episode."""
    made = [Call(name, arguments) for name, arguments in calls]
    played = await play_episode(scenario, task, made, environment=environment)
    low, high = scenario.reward_range
    assert low <= played[1].value <= high
    assert abs(sum(played[1].parts.values()) - played[1].value) < 1e-9
    return played


def needed(scenario: Scenario, task: Task) -> list[tuple[str, dict[str, Any]]]:
    calls = scenario.needed_calls(task) or []
    return [(call.tool, dict(call.arguments)) for call in calls]


def task_of(
    scenario: GeneratedScenario[Any],
    family: str,
    index: int = 0,
    split: Split = Split.TRAIN,
) -> Task:
    [found] = [f for f in scenario.families if f.name == family]
    return scenario.make_task(found, split, 0, index)
