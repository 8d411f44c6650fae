"""Where each task has tools of its own, every framework's agent is offered these."""

import json
import re
from pathlib import Path

import pytest

from agentgym.core.policy import ChatRequest
from agentgym.core.task import Split
from agentgym.core.trajectory import Trajectory
from agentgym.engines.scripted import Reply, ScriptedPolicy
from agentgym.evaluate.calls import CallClass
from agentgym.evaluate.check import check_scenario
from agentgym.evaluate.evaluation import judge
from agentgym.rollout.runner import RolloutRequest
from agentgym.scenarios.registry import get_scenario
from tests.integrations.calculator import said
from tests.rollout.sessions import session

SCENARIO = str(Path(__file__).parent / "own_tools_each.py")
AGENT = "tests.integrations.own_tools_each:make_agent"


def heat(request: ChatRequest) -> Reply:
    """Call the first tool that is offered, with the number that the user says."""
    if said(request):
        return Reply("Done.")
    function = request.tools[0]["function"]
    [argument] = function["parameters"]["properties"]
    [degrees] = re.findall(r"\d+", str(request.messages[-1]["content"]))
    return Reply(calls=[(function["name"], json.dumps({argument: int(degrees)}))])


@pytest.mark.parametrize(
    ("framework", "agent"),
    [
        ("native", None),
        ("langchain", None),
        ("langchain", AGENT),
        ("autogen", None),
        ("crewai", None),
    ],
)
def test_each_task_is_offered_its_own_tools(
    tmp_path: Path, framework: str, agent: str | None
) -> None:
    scenario = get_scenario(SCENARIO)
    tasks = scenario.tasks(Split.TEST, 0, 6)  # two of each room
    wanted = [
        RolloutRequest(f"r{n}", task, train=False, group="g", step=0)
        for n, task in enumerate(tasks)
    ]
    given = {"scenario": SCENARIO, "framework": framework, "agent": agent}
    with session(tmp_path, ScriptedPolicy(heat), max_attempts=1, **given) as opened:
        made: list[Trajectory] = opened.run(wanted, lambda _: None)
    for task, found in zip(tasks, made, strict=True):
        assert found.success, found.reason
        names = [tool["function"]["name"] for tool in found.model_calls[0].tools]
        assert names == [f"heat_{task.goal['room']}", "wait"]
        told = found.model_calls[0].tools[1]["function"]["description"]
        assert told == f"Wait in the {task.goal['room']}."
    attempts, confusion = judge(scenario, tasks, made)
    assert [attempt.calls for attempt in attempts] == [{CallClass.RIGHT: 1}] * 6
    assert confusion is not None
    assert set(confusion.tools) == {"heat_kitchen", "heat_cellar", "heat_attic", "wait"}


def test_the_check_takes_tools_that_differ_and_asks_for_no_rare_words() -> None:
    found = {finding.name: finding for finding in check_scenario(SCENARIO, tasks=6)}
    failed = {n: f.why for n, f in found.items() if f.status == "fail"}
    assert not failed
    assert get_scenario(SCENARIO).splits == (Split.TRAIN, Split.VALIDATION, Split.TEST)


def test_an_environment_with_tools_that_the_scenario_does_not_name_fails_the_check(
    tmp_path: Path,
) -> None:
    text = Path(SCENARIO).read_text()
    asked = "return _task_tools(0)"
    text = text.replace("        return []\n", f"        {asked}\n", 1)
    text += "\n\ndef _task_tools(n: int) -> list[ToolSpec]:\n"
    text += "    return [tool.spec for tool in Room(ROOMS[n]).tools()]\n"
    pack = tmp_path / "own_tools_each.py"
    pack.write_text(text)
    found = {finding.name: finding for finding in check_scenario(str(pack), tasks=6)}
    assert found["tools"].status == "fail"
    assert "heat_cellar" in found["tools"].why
    assert "return [] there" in found["tools"].why
