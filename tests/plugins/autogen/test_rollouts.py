"""Rollouts of agents and teams of users, through workers and the gateway."""

from pathlib import Path

import pytest

from agentgym.core.policy import ChatRequest
from agentgym.core.tools import ToolOutcome
from agentgym.core.trajectory import Trajectory
from agentgym.engines.scripted import Reply, ScriptedPolicy
from tests.rollout.sessions import requests, session

TEAMS = "tests.plugins.autogen.teams"


def run(folder: Path, agent: str | None, *script: Reply) -> Trajectory:
    """Run one rollout whose model gives these replies, by number of the call."""
    replies = iter(script)

    def respond(request: ChatRequest) -> Reply:
        return next(replies, Reply("Hm."))

    factory = agent and f"{TEAMS}:{agent}"
    with session(
        folder,
        ScriptedPolicy(respond),
        framework="autogen",
        agent=factory,
        max_attempts=1,
    ) as opened:
        [trajectory] = opened.run(requests(1), lambda _: None)
    return trajectory


def speakers(trajectory: Trajectory) -> list[str]:
    return [call.agent for call in trajectory.model_calls]


LIST = Reply(calls=[("list_files", {})])


@pytest.mark.parametrize("agent", ["make_agent", "make_streaming_agent"])
def test_a_factorys_agent_is_run_and_scored(tmp_path: Path, agent: str) -> None:
    found = run(tmp_path, agent, LIST, Reply("Done."))
    assert found.reward is not None, found.reason
    [call] = found.get_tool_calls()
    assert (call.outcome, call.id) == (
        ToolOutcome.OK,
        found.model_calls[0].tool_calls[0].id,
    )
    assert found.model_calls[0].messages[0]["content"] == "You note."


@pytest.mark.slow
def test_a_hand_off_is_no_mistake(tmp_path: Path) -> None:
    over = Reply(calls=[("transfer_to_worker", {})])
    found = run(tmp_path, "make_swarm", over, LIST, Reply("DONE"))
    assert found.reward is not None, found.reason
    assert speakers(found) == ["desk", "worker", "worker"]
    calls = [(call.name, call.outcome) for call in found.get_tool_calls()]
    assert calls == [
        ("transfer_to_worker", ToolOutcome.OK),
        ("list_files", ToolOutcome.OK),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("agent", ["make_endless_pair", None])
def test_a_team_that_never_ends_is_cut_and_scored(
    tmp_path: Path, agent: str | None
) -> None:
    script = [LIST] * 40 if agent is None else []
    found = run(tmp_path, agent, *script)
    assert str(found.reason).startswith("max_turns: no answer within")
    assert found.reward is not None
    [log] = tmp_path.rglob("workers.log")
    assert log.read_text() == ""


@pytest.mark.slow
def test_the_model_is_told_of_the_tools_as_they_are(tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    there.mkdir()
    here.mkdir()
    with session(there, framework="native") as opened:
        [native] = opened.run(requests(1), lambda _: None)
    autogen = run(here, None, LIST, Reply("Done."))
    told, same = autogen.model_calls[-1], native.model_calls[-1]
    assert told.tools == same.tools
    assert [m["role"] for m in told.messages] == [m["role"] for m in same.messages]
    assert told.messages[0] == same.messages[0]
    assert told.messages[-1]["content"] == same.messages[-1]["content"]
