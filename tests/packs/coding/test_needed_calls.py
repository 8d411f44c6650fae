"""What the tasks of the scenario need: their own plans, made, are all right."""

import pytest

from agentgym.core.task import Split
from agentgym.evaluate.baselines import Call, play
from agentgym.evaluate.call_classes import CallClass
from agentgym.evaluate.evaluation import judge
from agentgym.packs.coding.scenario import CodingScenario
from tests.some import some


@pytest.mark.parametrize("level", [1, 2])
async def test_the_plan_of_a_task_is_what_it_needs(
    scenario: CodingScenario, level: int
) -> None:
    for task in some(scenario.tasks(Split.VALIDATION, 0, 20, levels=(level,))):
        needed = scenario.needed_calls(task)
        plan = [Call(need.tool, dict(need.arguments)) for need in needed]
        trajectory, reward = await play(scenario, task, plan)
        assert reward.success, task.instruction
        [attempt], confusion = judge(scenario, [task], [trajectory])
        assert attempt.calls == {CallClass.RIGHT: len(plan)}, task.instruction
        assert confusion is not None
        assert all(set(row) <= {tool} for tool, row in confusion.counts.items())
        rows = confusion.counts.values()
        assert sum(sum(row.values()) for row in rows) == len(plan)
