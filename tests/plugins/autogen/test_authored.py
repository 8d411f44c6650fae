"""Rollouts of agents and teams as their authors wrote them."""

import re
from pathlib import Path
from typing import Any

import pytest

from agentgym.core.policy import ChatRequest
from agentgym.core.tools import ToolOutcome
from agentgym.core.trajectory import RolloutStatus, Trajectory
from agentgym.engines.scripted import Reply, ScriptedPolicy
from tests.integrations.test_authored import ledger
from tests.plugins.autogen.test_rollouts import LIST, speakers
from tests.rollout.sessions import requests, session

AUTHORED = "tests.plugins.autogen.authored"


def run_all(
    folder: Path, agent: str, respond: Any, count: int = 1, **settings: Any
) -> list[Trajectory]:
    folder.mkdir(exist_ok=True)
    with session(
        folder,
        ScriptedPolicy(respond),
        framework="autogen",
        agent=f"{AUTHORED}:{agent}",
        max_attempts=1,
        **settings,
    ) as opened:
        return opened.run(requests(count), lambda _: None)


def run(folder: Path, agent: str, *script: Reply, **settings: Any) -> Trajectory:
    """Run one rollout whose model gives these replies, by number of the call."""
    replies = iter(script)
    [found] = run_all(folder, agent, lambda _: next(replies, Reply("Hm.")), **settings)
    return found


def results(trajectory: Trajectory) -> list[tuple[str, str, bool]]:
    return [
        (call.name, call.outcome.value, ".py" in call.result)
        for call in trajectory.get_tool_calls()
    ]


OK = Reply("Ok.")


SEEN = [("list_files", "ok", True)]


@pytest.mark.slow
def test_episodes_at_once_share_nothing(tmp_path: Path) -> None:
    done = run_all(tmp_path, "pair", _told_what_it_was_told, 64, workers=1)
    for request, found in zip(requests(64), done, strict=True):
        assert found.reward is not None, found.reason
        assert speakers(found) == ["planner", "worker", "worker"]
        said = [message["content"] for message in found.model_calls[-1].messages]
        assert said[:3] == [
            "You look.",
            request.task.instruction,
            f"I was told: {request.task.instruction}",
        ]
        assert len(said) == 5
        assert results(found) == SEEN


def _told_what_it_was_told(request: ChatRequest) -> Reply:
    if not request.tools:
        return Reply(f"I was told: {request.messages[-1]['content']}")
    return Reply("DONE") if request.messages[-1]["role"] == "tool" else LIST


@pytest.mark.slow
def test_a_client_of_openais_own_is_led_too(tmp_path: Path) -> None:
    done = run_all(tmp_path, "author", lambda _: Reply("Fine."), 8)
    for request, found in zip(requests(8), done, strict=True):
        [call] = found.model_calls
        assert [m["content"] for m in call.messages] == [request.task.instruction]
        assert call.content == "Fine."


@pytest.mark.slow
def test_tools_that_the_episode_does_not_have_run_as_they_are(tmp_path: Path) -> None:
    shout = Reply(calls=[("shout", {"word": "hey"})])
    found = run(tmp_path, "clerk", shout, Reply("Done."))
    assert "HEY" in str(found.model_calls[-1].messages[-1]["content"])
    far = run(tmp_path / "x", "far", Reply(calls=[("far", {})]), Reply("Done."))
    assert "the real tool ran" in str(far.model_calls[-1].messages[-1]["content"])


@pytest.mark.slow
def test_calls_that_are_no_object_are_malformed(tmp_path: Path) -> None:
    calls = [("list_files", "{"), ("list_files", "[1]"), ("list_files", {"x": 1})]
    found = run(tmp_path, "clerk", Reply(calls=calls), Reply("Done."))
    assert [call.outcome for call in found.get_tool_calls()] == [
        ToolOutcome.MALFORMED,
        ToolOutcome.MALFORMED,
        ToolOutcome.INVALID_ARGUMENTS,
    ]


@pytest.mark.slow
def test_a_person_in_a_team_is_the_scenarios_user(tmp_path: Path) -> None:
    found = run(tmp_path, "asking", Reply("Which?"))
    assert str(found.reason) == "interrupt: the user has nothing to say to: Which?"
    assert found.reward is not None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("agent", "reason"),
    [
        ("breaking", "the agent is broken"),
        ("exiting", r"the agent called sys\.exit\(3\)"),
        ("exiting_team", r"sys\.exit\(3\)"),
        ("deaf", "ended without calling the model"),
        ("looping", "timeout"),
    ],
)
def test_what_goes_wrong_drops_the_episode_and_says_why(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], agent: str, reason: str
) -> None:
    found = run(tmp_path, agent, rollout_timeout_s=2)
    assert found.status is RolloutStatus.DROPPED
    assert re.search(reason, str(found.reason)), found.reason
    assert capfd.readouterr().out == ""


@pytest.mark.slow
def test_a_tool_that_ends_the_process_ends_the_episode(tmp_path: Path) -> None:
    again = Reply(calls=[("quit_all", {})])
    found = run(tmp_path, "quitting", again, Reply("Done."))
    assert found.status is RolloutStatus.DROPPED
    assert "the tool quit_all called sys.exit(3)" in str(found.reason)


@pytest.mark.slow
def test_a_ledger_that_names_no_speaker_is_the_policys_failure(tmp_path: Path) -> None:
    found = run(tmp_path, "magentic_pair", OK, OK, ledger("Santa"))
    assert found.reason is not None
    assert found.reason.kind == "wrong form"
    assert found.reward is not None
