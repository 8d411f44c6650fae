"""Multi-turn entries of BFCL, on made-up programs in the real sandbox."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from agentgym import Task, Trajectory
from agentgym.core.background import in_background
from agentgym.errors import UsageError
from agentgym.integrations.episode import Episode
from agentgym.integrations.run import ScenarioEnding, run_episode
from agentgym.plugins.bench.bfcl import package
from agentgym.plugins.collect.agents import ToolAgent
from agentgym.scenarios.base import Scenario
from agentgym.scenarios.registry import get_scenario
from agentgym.scenarios.task_lists import tasks_to_measure
from tests.plugins.bench.bfcl.made_up import trust, write_package

Turn = Sequence[tuple[str, str]]


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    trust(monkeypatch)
    monkeypatch.setenv("AGENTGYM_HOME", str(tmp_path / "home"))
    return write_package(tmp_path / "data", count=2)


@pytest.fixture
def scenario(data: Path) -> Iterator[Scenario]:
    found = get_scenario(f"bfcl?data={data}&categories=multi_turn")
    yield found
    found.close()


def converse(scenario: Scenario, task: Task, turns: Sequence[Turn]) -> Trajectory:
    """Let the native agent make the calls of each turn, one after the other."""
    answers: list[dict[str, object]] = []
    for turn in turns:
        for name, arguments in turn:
            function = {"name": name, "arguments": arguments}
            call = {"id": f"c{len(answers)}", "type": "function", "function": function}
            answers.append({"role": "assistant", "content": None, "tool_calls": [call]})
        answers.append({"role": "assistant", "content": "Done."})
    waiting = iter(answers)

    async def llm(messages: list[dict[str, object]], **options: object) -> object:
        return {"choices": [{"message": next(waiting), "finish_reason": "stop"}]}

    episode = Episode(
        task, scenario=scenario.name, max_turns=scenario.max_turns, llm=llm
    )
    return in_background(
        run_episode(
            episode,
            ToolAgent().run,
            create_environment=scenario.create_environment,
            ending=ScenarioEnding(scenario),
        )
    )


def task_of(scenario: Scenario, category: str) -> Task:
    tasks = tasks_to_measure(scenario, "all", 0, 99)
    return next(task for task in tasks if task.family == category)


def right_calls(task: Task) -> list[Turn]:
    number = task.id.rpartition("_")[2]
    opened = ("create_ticket", json.dumps({"title": f"T{number}"}))
    closed = ("close_ticket", '{"ticket_id": 1}')
    between: list[Turn] = [[]] * (len(task.goal["answers"]) - 2)
    return [[opened], *between, [closed]]


@pytest.mark.parametrize(
    "category",
    [
        "multi_turn_base",
        "multi_turn_miss_func",
        "multi_turn_miss_param",
        "multi_turn_long_context",
    ],
)
def test_right_calls_in_their_turns_succeed(scenario: Scenario, category: str) -> None:
    task = task_of(scenario, category)
    made = converse(scenario, task, right_calls(task))
    assert (made.success, made.reward, made.reason) == (True, 1.0, None)
    assert (made.right_tool, made.right_arguments) == (1.0, 1.0)
    assert [call.result for call in made.get_tool_calls()] == [
        "{'id': 1}",
        "{'closed': True}",
    ]


@pytest.mark.slow
def test_wrong_calls_fail_and_say_which_part_was_right(scenario: Scenario) -> None:
    task = task_of(scenario, "multi_turn_base")
    opened, closed = right_calls(task)
    early = converse(scenario, task, [[*opened, *closed], []])
    assert (early.success, early.right_arguments) == (False, 1.0)
    other = converse(scenario, task, [[("create_ticket", '{"title": "x"}')], closed])
    assert (other.success, other.right_tool, other.right_arguments) == (False, 1.0, 0.5)
    text = converse(scenario, task, [[*opened, ("close_ticket", '{"ticket_id": "a"}')]])
    said = text.get_tool_calls()[1].result
    assert "Error during execution" in str(said)  # the program ran, as theirs does
    assert not text.success  # and the second turn was never answered


def test_a_missing_function_comes_with_its_turn(scenario: Scenario) -> None:
    task = task_of(scenario, "multi_turn_miss_func")
    opened, *_, closed = right_calls(task)
    early = converse(scenario, task, [[*opened, *closed], [], closed])
    assert "no tool is named 'close_ticket'" in str(early.get_tool_calls()[1].result)
    assert early.success  # a call of nothing changes nothing
    offered = [
        [tool["function"]["name"] for tool in call.tools] for call in early.model_calls
    ]
    assert offered[0] == ["create_ticket"]
    assert offered[-1] == ["create_ticket", "close_ticket"]
    last = early.model_calls[-1].messages
    assert "There are more." in [message.get("content") for message in last]


@pytest.mark.slow
def test_no_turn_takes_more_steps_than_the_benchmark_allows(scenario: Scenario) -> None:
    task = task_of(scenario, "multi_turn_miss_param")
    opened, _, closed = right_calls(task)
    ask = ("close_ticket", '{"ticket_id": 9}')
    odd = ("close_ticket", '{"ticket_id": 8}')
    most = [pair for _ in range(10) for pair in (ask, odd)]
    assert converse(scenario, task, [opened, most, closed]).success
    assert not converse(scenario, task, [opened, [*most, ask], closed]).success


def test_they_are_measured_and_never_trained_on(data: Path) -> None:
    usual = get_scenario(f"bfcl?data={data}")
    families = {task.family for task in tasks_to_measure(usual, "all", 0, 999)}
    assert not any("multi_turn" in family for family in families)
    every = get_scenario(f"bfcl?data={data}&categories=all")
    splits = {
        task.split
        for task in tasks_to_measure(every, "all", 0, 999)
        if "multi_turn" in task.family
    }
    assert splits == {"test"}


def test_programs_of_another_version_and_broken_entries_are_refused(data: Path) -> None:
    reference = f"bfcl?data={data}&categories=multi_turn_base"
    root = data / package.NAME
    file = root / "data/possible_answer/BFCL_v4_multi_turn_base.json"
    text = file.read_text()
    file.write_text(text.replace("close_ticket(", "close_ticket"))
    with pytest.raises(UsageError, match="is not one of BFCL v4"):
        get_scenario(reference)
    file.write_text(text)
    program = root / package.PROGRAMS[-1]
    program.write_text("# another\n")
    with pytest.raises(UsageError, match="other multi-turn programs than"):
        get_scenario(reference)
    assert get_scenario(f"bfcl?data={data}").name == "bfcl"
