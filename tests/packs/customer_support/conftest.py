"""How to play calls at a shop's desk."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from pydantic import ValidationError

from agentgym.core.task import Task
from agentgym.core.tools import ToolOutcome
from agentgym.core.trajectory import Reward, ToolCall, Trajectory
from agentgym.errors import RuleViolation, ToolError
from agentgym.packs.customer_support.scenario import CustomerSupportScenario

Calls = Sequence[tuple[str, dict[str, Any]]]
Play = Callable[[Task, Calls], Awaitable[Reward]]


@pytest.fixture
def play() -> Play:
    """Make calls in a fresh shop, without a word, and score the episode."""

    async def run(task: Task, calls: Calls) -> Reward:
        scenario = CustomerSupportScenario()
        environment = scenario.create_environment(task)
        tools = {tool.spec.name: tool for tool in environment.tools()}
        trajectory = Trajectory(rollout_id="r", scenario="", task_id=task.id)
        for name, arguments in calls:
            outcome = ToolOutcome.OK
            try:
                await tools[name](**arguments)
            except ValidationError:
                outcome = ToolOutcome.INVALID_ARGUMENTS
            except RuleViolation:
                outcome = ToolOutcome.RULE_BROKEN
            except ToolError:
                outcome = ToolOutcome.RAISED
            trajectory.steps.append(
                ToolCall(name=name, arguments=arguments, outcome=outcome)
            )
        reward = scenario.calculate_reward(task, environment, trajectory)
        environment.close()
        return reward

    return run
