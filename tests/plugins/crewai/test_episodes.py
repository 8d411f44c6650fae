"""Episodes of agents and crews, through real workers and the real gateway."""

from pathlib import Path
from typing import Any

import pytest

from agentgym.core.policy import ChatRequest
from agentgym.core.task import Split
from agentgym.core.trajectory import Trajectory
from agentgym.engines.scripted import Reply, ScriptedPolicy
from agentgym.integrations.episode import STUCK_AFTER
from agentgym.rollout.runner import RolloutRequest
from agentgym.scenarios.registry import get_scenario
from tests.rollout.sessions import session

TEAMS = "tests.plugins.crewai.teams"


pytestmark = pytest.mark.usefixtures("installed")


def run(folder: Path, respond: Any, agent: str | None = None) -> Trajectory:
    tasks = get_scenario("desk").tasks(Split.TRAIN, 0, 1)
    wanted = [RolloutRequest("r0", tasks[0], train=True, group="g", step=1)]
    chosen = {} if agent is None else {"agent": f"{TEAMS}:{agent}"}
    settings = {"scenario": "desk", "framework": "crewai", "max_attempts": 1, **chosen}
    with session(folder, ScriptedPolicy(respond), **settings) as opened:
        [trajectory] = opened.run(wanted, lambda _: None)
    return trajectory


def note_once(request: ChatRequest) -> Reply:
    if request.tools and request.messages[-1]["role"] != "tool":
        return Reply(calls=[("note", {"text": "this"})])
    return Reply("Done.")


def notes_of(trajectory: Trajectory) -> list[str]:
    return list(trajectory.reward_parts)


@pytest.mark.slow
@pytest.mark.parametrize(
    "agent", [None, "make_agent", "make_paid_agent", "make_task", "make_ready_crew"]
)
def test_what_a_factory_returns_is_run_and_its_roles_are_recorded(
    tmp_path: Path, agent: str | None
) -> None:
    trajectory = run(tmp_path, note_once, agent)
    assert trajectory.success, trajectory.reason
    assert notes_of(trajectory) == ["0 this"]
    [first, second, *others] = trajectory.model_calls
    assert "Note {this}." in first.messages[-1]["content"]
    name = {None: "agent", "make_ready_crew": "Head Scribe"}.get(agent, "Scribe")
    assert [first.agent, second.agent] == [name, name]
    assert [c.agent for c in others] == (
        ["Critiqué"] if agent == "make_ready_crew" else []
    )
    told = [message["role"] for message in first.messages]
    assert told == ["system", "user"]


@pytest.mark.slow
def test_calls_of_one_message_run_in_their_order(tmp_path: Path) -> None:
    def respond(request: ChatRequest) -> Reply:
        if request.messages[-1]["role"] == "tool":
            return Reply("Done.")
        return Reply(calls=[("note", {"text": str(n)}) for n in range(6)])

    trajectory = run(tmp_path, respond)
    assert notes_of(trajectory) == [f"{n} {n}" for n in range(6)]
    results = [call.result for call in trajectory.get_tool_calls()]
    assert results == [f"{n + 1} notes" for n in range(6)]


@pytest.mark.slow
def test_a_call_is_made_again_and_not_remembered(tmp_path: Path) -> None:
    def respond(request: ChatRequest) -> Reply:
        said = sum(m["role"] == "assistant" for m in request.messages)
        return Reply(calls=[("note", {"text": "x"})]) if said < 3 else Reply("Done.")

    assert notes_of(run(tmp_path, respond)) == ["0 x", "1 x", "2 x"]


@pytest.mark.slow
@pytest.mark.parametrize("agent", [None, "make_task"])
def test_nothing_happens_after_a_cut_although_crewai_tries_again(
    tmp_path: Path, agent: str | None
) -> None:
    stuck = [("refuse", {})] * STUCK_AFTER

    def respond(request: ChatRequest) -> Reply:
        return Reply(calls=[*stuck, ("note", {"text": "x"})])

    trajectory = run(tmp_path, respond, agent)
    assert str(trajectory.reason) == "stuck"
    assert trajectory.reward is not None
    assert notes_of(trajectory) == []
    assert len(trajectory.model_calls) == 1
    outcomes = [call.outcome.value for call in trajectory.get_tool_calls()]
    assert outcomes == ["raised"] * (STUCK_AFTER + 1)  # the last did not run


@pytest.mark.slow
def test_an_empty_answer_is_an_answer(tmp_path: Path) -> None:
    trajectory = run(tmp_path, lambda _: Reply(""))
    assert str(trajectory.reason) == "goal not reached"
    assert trajectory.reward is not None
