"""What holds for every shipped scenario with generated tasks."""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from agentgym import Split, Task
from agentgym.errors import UsageError
from agentgym.evaluate.baselines import CALL_EVERYTHING
from agentgym.evaluate.call_classes import CallClass
from agentgym.evaluate.evaluation import judge
from agentgym.packs.kit.tasks import GeneratedScenario
from agentgym.scenarios import Scenario, get_scenario
from tests.some import some

from .conftest import needed, play

NAMES = ("coding", "customer_support", "code_review", "qa_testing", "flight_booking")
FLIGHTS = 11  # families of flight_booking
PROGRAM = """
import hashlib
from agentgym import Split
from agentgym.scenarios import get_scenario
for name in {names}:
    tasks = get_scenario(name).tasks(Split.TEST, 7, 60)
    text = "".join(task.model_dump_json() for task in tasks)
    print(hashlib.sha256(text.encode()).hexdigest())
"""


@pytest.fixture(scope="module", params=NAMES)
def scenario(request: pytest.FixtureRequest) -> Iterator[Scenario]:
    made = get_scenario(request.param)
    yield made
    made.close()


@pytest.fixture(scope="module", params=NAMES[:2])
def stepwise(request: pytest.FixtureRequest) -> Iterator[GeneratedScenario[Any]]:
    """A scenario that pays for each step."""
    made = get_scenario(request.param)
    assert isinstance(made, GeneratedScenario)
    yield made
    made.close()


def of_each_family(scenario: Scenario, split: Split, each: int = 1) -> list[Task]:
    if isinstance(scenario, GeneratedScenario):
        count = each * len(scenario.families)
        return scenario.tasks(split, 0, count, levels=(1, 2, 3))
    return scenario.tasks(split, 0, each * FLIGHTS)


@pytest.mark.parametrize("split", list(Split))
async def test_the_needed_calls_are_a_success(scenario: Scenario, split: Split) -> None:
    for task in of_each_family(scenario, split):
        plan = needed(scenario, task)
        trajectory, reward = await play(scenario, task, plan)
        assert reward.success, task.id
        assert reward.value == reward.right_tool == reward.right_arguments == 1.0
        [attempt], _ = judge(scenario, [task], [trajectory])
        assert attempt.calls == {CallClass.RIGHT: len(plan)}, task.id


async def test_agents_without_a_model_earn_nothing(scenario: Scenario) -> None:
    for split in (Split.TRAIN, Split.TEST):
        for task in of_each_family(scenario, split):
            _, reward = await play(scenario, task, [])
            assert not reward.success
            assert -0.05 <= reward.value <= 0
            assert not reward.right_tool
            for agent in CALL_EVERYTHING:
                calls = agent.calls(task, scenario.tools())
                _, reward = await play(scenario, task, [(c[0], c[1]) for c in calls])
                assert not reward.success
                assert reward.value <= 0.05


async def test_a_step_pays_and_a_failed_try_of_it_pays_a_part(
    stepwise: GeneratedScenario[Any],
) -> None:
    for task in of_each_family(stepwise, Split.TRAIN):
        plan, values = needed(stepwise, task), list[float]()
        for done, (tool, arguments) in enumerate(plan):
            values.append((await play(stepwise, task, plan[:done]))[1].value)
            wrong = (tool, {**arguments, "nonsense": "x"})
            tried = (await play(stepwise, task, [*plan[:done], wrong]))[1]
            assert tried.value > values[-1], task.id
        assert values[-1] < 0.5
        assert values == sorted(set(values)), task.id


@pytest.mark.slow
def test_a_seed_gives_the_same_tasks_in_every_process() -> None:
    printed = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM.format(names=NAMES)],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("0", "1")
    }
    assert len(printed) == 1


def test_families_come_in_turn_and_levels_by_split(
    stepwise: GeneratedScenario[Any],
) -> None:
    for split in Split:
        levels = (1, 2, 3) if split is Split.TRAIN else (1, 2)
        count = sum(family.level in levels for family in stepwise.families)
        tasks = stepwise.tasks(split, 0, 3 * count)
        assert set(Counter(task.family for task in tasks).values()) == {3}
        assert {task.level for task in tasks} == set(levels)
        assert len({task.id for task in tasks}) == len(tasks)
        assert stepwise.tasks(split, 0, 5) == tasks[:5]
        others = {task.instruction for task in stepwise.tasks(split, 1, 3 * count)}
        assert len(others & {task.instruction for task in tasks}) < count
    assert {t.level for t in stepwise.tasks(Split.TEST, 0, 9, levels=(3,))} == {3}
    with pytest.raises(UsageError, match=r"not \(4,\)"):
        stepwise.tasks(Split.TEST, 0, 1, levels=(4,))


def test_held_out_sets(stepwise: GeneratedScenario[Any]) -> None:
    sets = stepwise.held_out(0, 90)
    assert {name: len(tasks) for name, tasks in sets.items()} == {
        "held-out": 90,
        "level 3": 15,
        "out-of-vocabulary": 15,
    }
    assert {(t.split, t.level) for t in sets["held-out"]} == {
        (Split.TEST, 1),
        (Split.TEST, 2),
    }


@pytest.mark.parametrize("split", list(Split))
def test_a_request_is_one_line(scenario: Scenario, split: Split) -> None:
    for task in some(of_each_family(scenario, split, 10)):
        customer = task.initial_state.get("customer", {"facts": {}, "later": []})
        facts = [text for texts in customer["facts"].values() for text in texts]
        for text in (task.instruction, *facts, *customer["later"]):
            assert text == " ".join(text.split())
            assert "{" not in text
            assert len(text) < 180
