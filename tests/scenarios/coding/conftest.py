"""A scenario that runs the generator's own code in process, and how to play it."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from pydantic import ValidationError

from agentgym.core.task import Task
from agentgym.core.tools import ToolOutcome
from agentgym.core.trajectory import ToolCall, Trajectory
from agentgym.errors import RuleViolation, ToolError
from agentgym.scenarios.base import Reward
from agentgym.scenarios.coding.environment import CodingEnvironment
from agentgym.scenarios.coding.scenario import CodingScenario
from agentgym.scenarios.coding.trusted import TrustedRunner

Calls = Sequence[tuple[str, dict[str, Any]]]
Play = Callable[[Task, Calls], Awaitable[Reward]]


@pytest.fixture
def scenario() -> CodingScenario:
    return CodingScenario(TrustedRunner())


@pytest.fixture
def play(scenario: CodingScenario) -> Play:
    """Make calls in a fresh environment of a task and score the episode."""

    async def run(task: Task, calls: Calls) -> Reward:
        return await play_in(scenario, scenario.create_environment(task), task, calls)

    return run


async def play_in(
    scenario: CodingScenario, environment: CodingEnvironment, task: Task, calls: Calls
) -> Reward:
    tools = {tool.spec.name: tool for tool in environment.tools()}
    trajectory = Trajectory(rollout_id="r", scenario="coding", task_id=task.id)
    for name, arguments in calls:
        outcome, result = ToolOutcome.OK, ""
        try:
            if name in tools:
                result = await tools[name](**arguments)
            else:
                outcome = ToolOutcome.UNKNOWN_TOOL
        except ValidationError:
            outcome = ToolOutcome.INVALID_ARGUMENTS
        except RuleViolation:
            outcome = ToolOutcome.RULE_BROKEN
        except ToolError:
            outcome = ToolOutcome.RAISED
        call = ToolCall(name=name, arguments=arguments, outcome=outcome, result=result)
        trajectory.steps.append(call)
    return scenario.calculate_reward(task, environment, trajectory)
