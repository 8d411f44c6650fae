"""Tasks files whose lines have tools of their own, as data of function calling have."""

import json
from pathlib import Path
from typing import Any

import pytest

from agentgym import Scenario, Split, Trajectory
from agentgym.core.background import in_background
from agentgym.core.config import TrainingConfig
from agentgym.core.tools import ToolOutcome
from agentgym.errors import UsageError
from agentgym.evaluate.baselines import Call, attempt
from agentgym.evaluate.call_classes import CallClass
from agentgym.evaluate.check import check_scenario
from agentgym.evaluate.evaluation import judge
from agentgym.rollout.absolute_paths import located
from agentgym.scenarios.registry import get_scenario
from tests.cli.conftest import Command, agentgym
from tests.scenarios.tool_tasks.shop import write

__all__ = ["agentgym"]

CITIES = ("Lima", "Oslo", "Cairo", "Quito", "Perth", "Delhi", "Turin")


def function(name: str, **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": [*properties]}
    said = {"name": name, "description": f"About {name}.", "parameters": schema}
    return {"type": "function", "function": said}


def weather(city: str, number: int) -> dict[str, Any]:
    """Return a line with tools of its own, one of which it needs."""
    days = {"type": "integer", "minimum": 1}
    tool = f"weather_in_{city.lower()}"
    return {
        "id": f"{city}-{number}",
        "instruction": f"How will it be in {city} on day {number + 1}?",
        "tools": [
            function(tool, days=days),
            function("add", a={"type": "number"}, b={"type": "number"})["function"],
        ],
        "expect": [{"tool": tool, "args": {"days": number + 1}, "answer": "sunny"}],
    }


@pytest.fixture
def tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    lines = [weather(city, number) for number in range(5) for city in CITIES]
    return write(tmp_path / "weather.jsonl", lines)


def play(scenario: Scenario, name: str, **arguments: Any) -> Trajectory:
    """Make one call for Lima's first task."""
    every = (t for s in scenario.splits for t in scenario.tasks(s, 0, 99))
    task = next(task for task in every if task.id == "Lima-0")
    return in_background(attempt(scenario, task, [Call(name, arguments)]))


def test_each_line_offers_checks_and_answers_its_own(tasks: Path) -> None:
    scenario = get_scenario(str(tasks))
    assert scenario.tools() == []
    right = play(scenario, "weather_in_lima", days=1)
    assert right.success
    assert right.get_tool_calls()[0].result == "sunny"
    other = play(scenario, "add", a=1, b=2)
    assert other.get_tool_calls()[0].outcome is ToolOutcome.RAISED
    made = [other]
    for wrong, kind in (
        ({"days": 0}, CallClass.WRONG_VALUE),
        ({"days": "many"}, CallClass.WRONG_TYPE),
        ({}, CallClass.MISSING),
        ({"days": 1, "hour": 2}, CallClass.EXTRA),
    ):
        made = [play(scenario, "weather_in_lima", **wrong)]
        [call] = made[0].get_tool_calls()
        assert call.outcome is ToolOutcome.INVALID_ARGUMENTS
        every = [t for s in scenario.splits for t in scenario.tasks(s, 0, 99)]
        [judged] = judge(scenario, every, made)[0]
        assert judged.calls == {kind: 1}
    unknown = play(scenario, "weather_in_oslo", days=1)
    assert unknown.get_tool_calls()[0].outcome is ToolOutcome.UNKNOWN_TOOL
    stubbed = get_scenario(f"{tasks}?answers=stub")
    assert play(stubbed, "add", a=1, b=2).get_tool_calls()[0].result == "add: done."


@pytest.mark.slow
def test_such_a_file_is_sound_and_needs_no_tools_of_an_agent(tasks: Path) -> None:
    found = {f.name: f for f in check_scenario(str(tasks), tasks=10)}
    assert not {n: f.why for n, f in found.items() if f.status == "fail"}
    assert found["oracle"].status == "pass"
    agent = "tests.integrations.own_tools_each:make_agent"
    config = TrainingConfig.create(scenario=str(tasks), agent=agent)
    assert "tools=" not in located(config).scenario
    assert Scenario.from_tools(tasks=tasks).tasks(Split.TEST, 0, 1)


def test_a_line_without_tools_among_others_is_named(tasks: Path) -> None:
    lost = weather("Lima", 9)
    lost.pop("tools")
    with tasks.open("a") as file:
        file.write(json.dumps(lost))
    with pytest.raises(UsageError, match="line 36: it has no `tools`"):
        get_scenario(str(tasks))


def test_the_command_names_the_broken_line_at_once(
    tasks: Path, agentgym: Command
) -> None:
    broken = weather("Lima", 9)
    broken["tools"][0]["function"]["parameters"]["properties"]["days"]["type"] = "int"
    with tasks.open("a") as file:
        file.write(json.dumps(broken))
    done = agentgym("train", "--tasks", str(tasks), "--dry-run")
    assert done.code == 2
    assert "line 36: tools[0]: the parameters of 'weather_in_lima'" in done.err
    assert "properties.days.type: 'int' is not valid" in done.err
