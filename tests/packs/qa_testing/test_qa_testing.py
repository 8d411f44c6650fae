"""Tests that kill mutants are paid, if they pass on the right code."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from agentgym.core.task import Task
from agentgym.core.tools import run_tool
from agentgym.core.trajectory import Reward, ToolCall
from agentgym.errors import ToolError
from agentgym.packs.qa_testing.scenario import QaTestingScenario, read_call, read_value
from tests.packs.conftest import Calls, task_of
from tests.packs.conftest import play as play_calls


@pytest.fixture(scope="module")
def scenario() -> Iterator[QaTestingScenario]:
    made = QaTestingScenario()
    yield made
    made.close()


def play(
    scenario: QaTestingScenario, task: Task, calls: Calls
) -> tuple[Reward, list[ToolCall]]:
    trajectory, reward = asyncio.run(play_calls(scenario, task, calls))
    return reward, trajectory.get_tool_calls()


def plan(task: Task) -> list[tuple[str, dict[str, Any]]]:
    return [(tool, dict(arguments)) for tool, arguments in task.goal["plan"]]


def with_tests(task: Task, *cases: tuple[str, str]) -> Calls:
    read, *_ = plan(task)
    adds = [("add_test", {"call": c, "expected": v}) for c, v in cases]
    return [read, *adds]


def test_the_value_of_a_call_is_what_its_test_expects(
    scenario: QaTestingScenario,
) -> None:
    for seed in range(5):
        task = task_of(scenario, "test_module", index=seed)
        calls = [*plan(task), ("run_tests", {})]
        _, made = play(scenario, task, calls)
        for (tool, _), ran, added in zip(
            plan(task)[1:], made[1:], made[2:], strict=False
        ):
            if tool == "run_call":
                assert added.arguments is not None
                assert ran.result == added.arguments["expected"]
        assert made[-1].result.endswith(" passed.")


def test_tests_that_fail_on_the_right_code_kill_nothing_and_cost(
    scenario: QaTestingScenario,
) -> None:
    task = task_of(scenario, "test_function")
    [(call, value)] = [
        (a["call"], a["expected"]) for tool, a in plan(task) if tool == "add_test"
    ]
    wrong, _ = play(scenario, task, with_tests(task, (call, "123456")))
    right, _ = play(scenario, task, with_tests(task, (call, value)))
    read, _ = play(scenario, task, plan(task)[:1])
    assert right.success
    assert not wrong.success
    assert wrong.value < 0 < read.value < 0.1
    assert wrong.right_arguments == 0.0


def test_tests_that_pass_everywhere_pay_nothing(scenario: QaTestingScenario) -> None:
    """0 + 0 and 0 * 0 are alike."""
    for seed in range(40):
        task = task_of(scenario, "test_boundary", index=seed)
        cases = [a for tool, a in plan(task) if tool == "add_test"]
        if len(cases) == 2:
            break
    one = (cases[0]["call"], cases[0]["expected"])
    reward, _ = play(scenario, task, with_tests(task, one))
    assert not reward.success
    assert 0 < reward.right_arguments < 1  # type: ignore[operator]


def test_testing_everything_that_comes_to_mind_does_not_pay(
    scenario: QaTestingScenario,
) -> None:
    task = task_of(scenario, "test_function", index=3)
    name = plan(task)[1][1]["call"].partition("(")[0]
    source = task.initial_state["files"][task.goal["module"]]
    takes = source.partition(f"def {name}(")[2].partition(")")[0].count(",") + 1
    calls = plan(task)
    for number in range(12):
        arguments = ", ".join(str(number + place) for place in range(takes))
        calls.append(("run_call", {"call": f"{name}({arguments})"}))
    reward, _ = play(scenario, task, calls)
    assert not reward.success
    assert reward.value <= 0


@pytest.mark.parametrize(
    "text",
    [
        "add(open('m.py').read())",
        "add.__globals__",
        "add(*[1, 2])",
        "add(**{'a': 1})",
        "add(1, b=add(2))",
        "add(1, 2) == 3",
        "(lambda: 1)()",
        "__import__('os')",
        "add(1, 2); 1",
        "other(1)",
        "add(" * 200,
        "add(" + "1, " * 200 + ")",
    ],
)
def test_a_call_can_look_at_nothing_but_values(text: str) -> None:
    with pytest.raises(ToolError):
        read_call(text, {"add"})


def test_calls_and_values_are_read_in_one_form() -> None:
    assert read_call(" add( 1,b = -2 ) ", {"add"}) == "add(1, b=-2)"
    assert read_value(" [1, 2.5, 'x'] ") == [1, 2.5, "x"]
    for text in ("x", "1 + a", "3j", "...", "f()", "1" * 400):
        with pytest.raises(ToolError, match="not a plain value"):
            read_value(text)


def test_a_module_is_read_before_it_is_tested_and_the_tests_are_kept(
    scenario: QaTestingScenario,
) -> None:
    task = task_of(scenario, "test_function")
    read, _, add = plan(task)
    reward, made = play(scenario, task, [add, read, add, add])
    assert "read " in made[0].result
    assert "tested already" in made[3].result
    assert not reward.success
    environment = scenario.create_environment(task)
    tools = {tool.spec.name: tool for tool in environment.tools()}
    for name, arguments in (read, add):
        asyncio.run(run_tool(tools, name, arguments))
    [(path, text)] = environment.changed_files().items()
    assert path.startswith("tests/test_")
    assert text is not None
    assert add[1]["call"] in text
