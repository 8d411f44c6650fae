"""An agent with tools of its own on a scenario that has others."""

from importlib import import_module
from pathlib import Path

import pytest

from agentgym.core.config import TrainingConfig
from agentgym.core.policy import ChatRequest
from agentgym.core.tools import ToolOutcome
from agentgym.engines.scripted import Reply, ScriptedPolicy
from agentgym.errors import UnsupportedError
from agentgym.evaluate import events
from agentgym.integrations.agent_import import load_agent
from agentgym.rollout.absolute_paths import located
from agentgym.rollout.inspection import AgentReport, probed, require_trainable
from agentgym.train.plan import make_plan
from agentgym.train.plan import tried as ask
from tests.rollout.sessions import requests, session

HERE = "tests.rollout.own_tools_agent"


def tried(name: str = "graph", **settings: object) -> AgentReport:
    config = TrainingConfig.create(
        scenario="coding", agent=f"{HERE}:{name}", **settings
    )
    return probed(located(config))


def test_what_becomes_of_an_agents_own_tools_is_asked_for() -> None:
    [problem] = tried().problems
    assert (
        "coding has no tools named send_mail, page_me, which the agent has" in problem
    )
    assert "--tools stub" in problem
    assert "--allow-tool send_mail" in problem
    [problem] = tried(**{"agent.allow_tools": ("page_me",)}).problems
    assert "no tools named send_mail, which" in problem
    config = TrainingConfig.create(scenario="coding", agent=f"{HERE}:graph")
    with pytest.raises(UnsupportedError, match="cannot be trained on coding as it is"):
        require_trainable(config, tried())


@pytest.mark.slow
def test_a_user_who_is_there_is_asked_tool_by_tool() -> None:
    def answer(event: events.Event) -> bool:
        assert isinstance(event, events.Question)
        return " page_me," in event.facts[0]

    config = TrainingConfig.create(scenario="coding", agent=f"{HERE}:graph")
    plan = ask(make_plan(located(config)), answer)
    assert plan.agent is not None
    assert plan.agent.own == {
        "send_mail": "is answered with made-up values",
        "page_me": "really runs",
    }
    assert (plan.config.agent.own_tools, plan.config.agent.allow_tools) == (
        "stub",
        ("page_me",),
    )
    with pytest.raises(UnsupportedError, match="--allow-tool send_mail"):
        ask(make_plan(located(config)), events.silent)


@pytest.mark.slow
def test_shared_names_act_on_the_scenario_and_differences_are_told() -> None:
    report = tried(**{"agent.own_tools": "stub", "agent.allow_tools": ("page_me",)})
    assert report.problems == []
    assert report.bound == ["list_files", "read_file"]
    assert report.own == {
        "send_mail": "is answered with made-up values",
        "page_me": "really runs",
    }
    assert "run_tests" in report.missing
    assert "read_file: the scenario's tool takes no 'lines'." in report.concerns
    assert import_module(HERE).MAILS == []


def test_own_tools_are_answered_or_run_as_was_said(tmp_path: Path) -> None:
    load_agent(f"{HERE}:graph")
    paged = tmp_path / "paged"

    def respond(request: ChatRequest) -> Reply:
        if request.messages[-1]["role"] == "tool":
            return Reply("Done.")
        return Reply(
            calls=[
                ("list_files", {}),
                ("send_mail", {"to": "ann@example.com", "urgent": True}),
                ("page_me", {"file": str(paged)}),
            ]
        )

    with session(
        tmp_path,
        ScriptedPolicy(respond),
        agent=f"{HERE}:graph",
        **{"agent.own_tools": "stub", "agent.allow_tools": ("page_me",)},
        concurrency=4,
    ) as opened:
        [made] = opened.run(requests(1), lambda _: None)
    calls = {call.name: call for call in made.get_tool_calls()}
    assert [call.outcome for call in calls.values()] == [ToolOutcome.OK] * 3
    assert calls["list_files"].result
    assert calls["send_mail"].arguments == {"to": "ann@example.com", "urgent": True}
    assert "sent" not in calls["send_mail"].result
    assert paged.read_text() == "paged"
    assert made.reward is not None
