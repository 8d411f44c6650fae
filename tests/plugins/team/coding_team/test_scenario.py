"""The scenario: its tasks, its plans, and its score."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

import pytest

from agentgym.core.config import TrainingConfig
from agentgym.core.needs import NeededCall
from agentgym.core.task import Split, Task
from agentgym.core.trajectory import Reward
from agentgym.errors import UsageError
from agentgym.evaluate.baselines import Call, play
from agentgym.packs.coding.execution import repaired
from agentgym.plugins.team.coding_team.scenario import FAMILIES, CodingTeamScenario
from agentgym.sandbox import Sandbox
from agentgym.scenarios.registry import get_scenario

PLANS = {
    "direct": ["generator", "executor", "finish"],
    "wrong_at_first": ["generator", "executor"] * 2 + ["finish"],
    "reviewed": ["generator", "reviewer", "executor", "finish"],
    "misspelled_at_first": [*("generator", "reviewer") * 2, *("executor", "finish")],
    "insecure_at_first": [*("generator", "reviewer") * 2, "executor", "finish"],
}


def tasks(scenario: CodingTeamScenario) -> dict[str, Task]:
    """Return one test task of each family."""
    found = scenario.tasks(Split.TEST, 3, len(FAMILIES))
    return {task.family: task for task in found}


def score(
    scenario: CodingTeamScenario, task: Task, plan: Sequence[NeededCall]
) -> Reward:
    made = [Call(need.tool, dict(need.arguments)) for need in plan]
    return asyncio.run(play(scenario, task, made))[1]


def test_each_family_has_its_own_way(scenario: CodingTeamScenario) -> None:
    for family, task in tasks(scenario).items():
        plan = scenario.needed_calls(task) or []
        ways = [n.arguments["to"] for n in plan if n.tool == "hand_over"]
        assert ways == PLANS[family]


@pytest.mark.parametrize("split", Split)
def test_the_last_draft_alone_is_right(
    scenario: CodingTeamScenario, sandbox: Sandbox, split: Split
) -> None:
    for task in scenario.tasks(split, 1, 2 * len(FAMILIES)):
        *wrong, right = task.initial_state["drafts"]
        hidden = task.goal["hidden"]
        assert repaired(sandbox, right, hidden)
        assert len(wrong) == ("at_first" in task.family)
        if task.family != "insecure_at_first":
            assert not any(repaired(sandbox, draft, hidden) for draft in wrong)


@pytest.mark.slow
def test_a_plan_succeeds_and_each_part_of_it_pays(scenario: CodingTeamScenario) -> None:
    for task in tasks(scenario).values():
        plan = scenario.needed_calls(task) or []
        values = [score(scenario, task, plan[:end]) for end in range(len(plan) + 1)]
        assert values[-1].success
        assert values[-1].value == pytest.approx(1.0)
        assert not any(reward.success for reward in values[:-1])
        numbers = [reward.value for reward in values]
        assert numbers == sorted(numbers)
        assert numbers[-2] < 0.5


def test_a_forbidden_choice_costs_the_success(scenario: CodingTeamScenario) -> None:
    task = tasks(scenario)["direct"]
    plan = scenario.needed_calls(task) or []
    early = NeededCall("hand_over", {"to": "finish"})
    reward = score(scenario, task, [early, *plan])
    assert not reward.success
    assert reward.parts["rules"] < 0


def test_a_needless_review_costs_little(scenario: CodingTeamScenario) -> None:
    task = tasks(scenario)["direct"]
    first, *rest = scenario.needed_calls(task) or []
    review = NeededCall("hand_over", {"to": "reviewer"})
    reward = score(scenario, task, [first, review, *rest])
    assert reward.success
    assert reward.value == pytest.approx(0.95)


class TestWithAPolicyThatWrites:
    @pytest.fixture
    def writing(self) -> Iterator[CodingTeamScenario]:
        with closing(CodingTeamScenario("policy")) as made:
            yield made

    def calls(self, task: Task, text: str) -> list[NeededCall]:
        path = task.initial_state["target"]
        return [
            NeededCall("hand_over", {"to": "generator"}),
            NeededCall("write_file", {"path": path, "text": text}),
            NeededCall("hand_over", {"to": "executor"}),
            NeededCall("run_tests", {}),
            NeededCall("hand_over", {"to": "finish"}),
        ]

    def test_right_code_is_paid(self, writing: CodingTeamScenario) -> None:
        task = tasks(writing)["direct"]
        [right] = task.initial_state["drafts"][-1].values()
        reward = score(writing, task, self.calls(task, right))
        assert reward.success
        assert reward.value == pytest.approx(1.0)
        assert writing.needed_calls(task) is None

    def test_changes_pay_by_hidden_values_alone(
        self, writing: CodingTeamScenario, scenario: CodingTeamScenario
    ) -> None:
        task = tasks(writing)["direct"]
        right = writing.judge_changes(task, task.initial_state["drafts"][-1])
        tests = {"tests/test_own.py": "def test_it():\n    assert True\n"}
        own = writing.judge_changes(task, tests)
        assert right is not None
        assert own is not None
        assert right.success
        assert (own.success, own.value) == (False, 0.0)
        assert scenario.judge_changes(task, tests) is None

    def test_code_that_fits_the_tests_alone_is_not(
        self, writing: CodingTeamScenario
    ) -> None:
        task = tasks(writing)["direct"]
        name = next(iter(task.goal["hidden"][task.initial_state["target"]]))
        cheat = f"def __getattr__(name):\n    return lambda *a: 0\n\n\n{name} = 0\n"
        reward = score(writing, task, self.calls(task, cheat))
        assert not reward.success
        assert reward.value <= 0


def test_options() -> None:
    names = {spec.name for spec in get_scenario("coding_team").tools()}
    assert "write_file" not in names
    given: Any = get_scenario("coding_team?generator=policy")
    assert "write_file" in {spec.name for spec in given.tools()}
    with pytest.raises(UsageError, match="script or policy, not 'me'"):
        get_scenario("coding_team?generator=me")


def test_the_graph_is_the_agent_that_is_trained() -> None:
    from agentgym.rollout.absolute_paths import located

    config = located(TrainingConfig.create(scenario="coding_team"))
    assert config.agent.reference == "agentgym.plugins.team.coding_team.graph:make_team"
    assert config.agent_name == "coding_team"
    with pytest.raises(UsageError, match="written for langchain: use --framework"):
        located(TrainingConfig.create(scenario="coding_team", framework="autogen"))
    assert located(TrainingConfig.create(scenario="coding")).agent.reference is None
