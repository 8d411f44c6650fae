"""The scenario as the trainer meets it, with the sandbox it opens itself."""

from typing import Any

import pytest

from agentgym.core.task import Split
from agentgym.core.trajectory import Trajectory
from agentgym.errors import ScenarioError
from agentgym.packs.coding.environment import CodingEnvironment
from agentgym.packs.coding.scenario import CodingScenario
from agentgym.scenarios import Environment, get_scenario
from recipes.nano.coding_oracle import solve


async def play(scenario: CodingScenario, task: Any) -> CodingEnvironment:
    environment = scenario.create_environment(task)
    tools = {tool.spec.name: tool for tool in environment.tools()}
    for step in solve(task):
        await tools[step.tool](**step.args)
    return environment


async def test_an_episode_in_its_own_sandbox() -> None:
    scenario = get_scenario("coding")
    assert isinstance(scenario, CodingScenario)
    tasks = scenario.tasks(Split.TEST, 0, 3, levels=(3,))
    try:
        for task in tasks:
            environment = await play(scenario, task)
            trajectory = Trajectory(rollout_id="r", scenario="coding", task_id=task.id)
            assert scenario.calculate_reward(task, environment, trajectory).success
            environment.close()
    finally:
        scenario.close()


@pytest.mark.slow
async def test_hidden_tests_run_for_another_repair_than_the_known_one() -> None:
    scenario = CodingScenario()
    [task, *_] = scenario.tasks(Split.TRAIN, 0, 3, levels=(3,))
    try:
        environment = await play(scenario, task)
        [path] = task.goal["expected"]
        files = environment.workspace.files
        trajectory = Trajectory(rollout_id="r", scenario="coding", task_id=task.id)
        files[path] = files[path].replace("return ", "return 0 or ")
        assert scenario.calculate_reward(task, environment, trajectory).success
        files[path] = files[path].replace("return 0 or ", "return None and ")
        assert not scenario.calculate_reward(task, environment, trajectory).success
        files[path] = "while True: pass\n" + files[path]
        assert not scenario.calculate_reward(task, environment, trajectory).success
    finally:
        scenario.close()


def test_only_its_own_environments_are_scored() -> None:
    class Other(Environment):
        pass

    scenario = CodingScenario()
    [task] = scenario.tasks(Split.TRAIN, 0, 1)
    trajectory = Trajectory(rollout_id="r", scenario="coding", task_id=task.id)
    with pytest.raises(ScenarioError, match="not an environment of this scenario"):
        scenario.calculate_reward(task, Other(), trajectory)


def test_what_it_promises() -> None:
    criteria = CodingScenario().success_criteria()
    assert criteria["tool_reliability"] == 0.95
    assert criteria["success_rate"] == 0.95
