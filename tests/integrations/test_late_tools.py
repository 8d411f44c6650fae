"""Tools that only a later request shows: of sub-agents, of nodes, of programs."""

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from agentgym.cli.inspect import tools_of, tried
from agentgym.core.config import TrainingConfig
from agentgym.core.policy import ChatRequest
from agentgym.core.task import Split, TaskSource
from agentgym.core.trajectory import Trajectory
from agentgym.engines.scripted import Reply, ScriptedPolicy
from agentgym.evaluate.evaluation import judge
from agentgym.rollout.absolute_paths import located
from agentgym.rollout.inspection import AgentReport, probed
from agentgym.rollout.runner import RolloutRequest
from agentgym.rollout.session import RolloutSession
from agentgym.scenarios.registry import get_scenario
from tests.integrations import late_agents

HERE = late_agents.__name__
PROGRAM = f"command:{sys.executable} -S {late_agents.__file__}"
IN_NODES = f"{HERE}:in_nodes"


def settings(folder: Path, agent: str, **call: object) -> TrainingConfig:
    """Return the settings of an agent, and of tasks that need one late call."""
    call = {"tool": "refund_order", "args": {"order": "A1"}, **call}
    lines = [
        json.dumps({"instruction": f"Refund A1, please, {n}.", "expect": [call]})
        for n in range(13)
    ]
    file = folder / "tasks.jsonl"
    file.write_text("\n".join(lines))
    return located(TrainingConfig.create(scenario=str(file), agent=agent))


def looked_into(folder: Path, agent: str, **call: object) -> AgentReport:
    return probed(settings(folder, agent, **call))


def rightly(request: ChatRequest) -> Reply:
    """Make the right call, with its default written out, by way of other agents."""
    offered = {tool["function"]["name"] for tool in request.tools}
    if request.messages[-1]["role"] == "tool" or not offered:
        return Reply("Done.")
    if "refund_order" in offered:
        return Reply(calls=[("refund_order", {"order": "A1", "amount": 5})])
    return Reply(calls=[("ask_refunds", {"job": "Refund A1."})])


def played(folder: Path, config: TrainingConfig, respond: Any = rightly) -> Trajectory:
    scenario = get_scenario(config.scenario)
    [task] = scenario.tasks(Split.TRAIN, 0, 1)
    folder.mkdir()
    config = config.replaced(workers=1, max_attempts=1)
    with RolloutSession(config, ScriptedPolicy(respond), folder, 1) as session:
        asked = RolloutRequest("r", task, train=True, group="g", step=1)
        [made] = session.run([asked], lambda _: None)
    [attempt], _ = judge(scenario, [task], [made])
    assert attempt.calls.get("right") == 1
    return made


@pytest.mark.slow
@pytest.mark.parametrize(
    "agent",
    [
        f"{HERE}:delegating",
        pytest.param(IN_NODES, marks=pytest.mark.slow),
        pytest.param(PROGRAM, marks=pytest.mark.slow),
    ],
)
def test_what_a_later_request_offers_can_be_expected(
    agent: str, tmp_path: Path
) -> None:
    report = looked_into(tmp_path, agent)
    assert report.problems == []
    assert report.missing == []
    made = played(tmp_path / "run", settings(tmp_path, agent))
    assert made.success
    assert made.score.right_arguments == 1.0


@pytest.mark.slow
@pytest.mark.parametrize("name", ["by_hand", "really_in_nodes"])
def test_a_tool_that_only_requests_show_can_really_run(
    name: str, tmp_path: Path
) -> None:
    config = settings(tmp_path, f"{HERE}:{name}")
    if name == "by_hand":
        [problem] = probed(config).problems
        assert "--tools live --allow-tool refund_order" in problem
    source = TaskSource.parse(config.scenario)
    live = replace(source, answers="live", allow=("refund_order",))
    config = config.replaced(scenario=str(live))
    assert probed(config).problems == []
    [call] = played(tmp_path / "run", config).get_tool_calls()
    assert call.result == "5 for A1"


@pytest.mark.slow
def test_calls_are_checked_by_the_schema_that_the_trial_saw(tmp_path: Path) -> None:
    [problem] = looked_into(tmp_path, IN_NODES, args={"amount": "much"}).problems
    assert "not arguments of 'refund_order'" in problem
    assert "it takes order, amount" in problem


def by_the_form(request: ChatRequest) -> Reply:
    """Answer in the form that is asked for, and do nothing else."""
    offered = [tool["function"]["name"] for tool in request.tools]
    return Reply(calls=[("Route", {"to": "rest"})] if offered == ["Route"] else [])


@pytest.mark.slow
def test_an_answer_in_a_form_that_is_not_the_last_one_counts(tmp_path: Path) -> None:
    expected = {"tool": "Route", "args": {"to": "rest"}}
    config = settings(tmp_path, f"{HERE}:routing", **expected)
    assert probed(config).problems == []
    made = played(tmp_path / "run", config, by_the_form)
    assert made.success


@pytest.mark.slow
def test_every_branch_of_an_answer_is_tried() -> None:
    found = {tool.spec.name for tool in tools_of(tried(f"{HERE}:routing"))}
    assert {"find_order", "rest_order", "refund_order"} <= found


@pytest.mark.slow
def test_tools_of_one_name_are_reached_by_their_own_tasks(tmp_path: Path) -> None:
    file = tmp_path / "tasks.jsonl"
    with file.open("w") as lines:
        for n in range(8):
            for text, key in (("Refund", "order"), ("Find", "name")):
                call = {"tool": "desk/order", "args": {key: f"{text} {n}"}}
                line = {"instruction": f"{text} {n}.", "expect": [call]}
                print(json.dumps(line), file=lines)
    config = TrainingConfig.create(scenario=str(file), agent=f"{HERE}:by_request")
    report = probed(located(config))
    assert (report.problems, report.missing) == ([], [])


@pytest.mark.slow
def test_a_tool_that_no_trial_offers_is_a_warning(tmp_path: Path) -> None:
    report = looked_into(tmp_path, IN_NODES, tool="cancel_order")
    assert report.problems == []
    [concern] = [each for each in report.concerns if "cancel_order" in each]
    assert "the trials saw" in concern


@pytest.mark.slow
def test_a_misspelt_tool_is_a_problem_with_the_right_name(tmp_path: Path) -> None:
    [problem] = looked_into(tmp_path, IN_NODES, tool="refund_odrer").problems
    assert "Did you mean 'refund_order'?" in problem
