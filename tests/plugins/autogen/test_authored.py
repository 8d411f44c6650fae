"""Rollouts of agents and teams as their authors wrote them."""

import re
from pathlib import Path
from typing import Any

import pytest

from agentgym.core.policy import ChatRequest
from agentgym.core.tools import ToolOutcome
from agentgym.core.trajectory import RolloutStatus, Trajectory
from agentgym.engines.scripted import Reply, ScriptedPolicy
from agentgym.errors import RolloutError
from tests.plugins.autogen.test_rollouts import LIST, speakers
from tests.rollout.sessions import list_then_answer, requests, session

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


def ledger(who: str, *, done: bool = False) -> Reply:
    """Return what MagenticOne's orchestrator asks for before each turn."""

    def entry(answer: object) -> dict[str, object]:
        return {"reason": "so", "answer": answer}

    given = {
        "is_request_satisfied": entry(done),
        "is_in_loop": entry(False),
        "is_progress_being_made": entry(True),
        "next_speaker": entry(who),
        "instruction_or_question": entry("Look."),
    }
    return Reply(calls=[("LedgerEntry", given)])


SEEN = [("list_files", "ok", True)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("agent", "script", "who"),
    [
        ("clerk", [LIST, OK], None),
        ("make_own", [LIST, OK], None),
        ("make_on", [LIST, OK], None),
        ("make_later", [LIST, OK], None),
        ("far", [LIST, OK], None),
        ("pair", [Reply("Do."), LIST, Reply("DONE")], ["planner", "worker", "worker"]),
        (
            "selected",
            [Reply("worker"), LIST, Reply("DONE")],
            ["SelectorGroupChatManager", "worker", "worker"],
        ),
        (
            "swarm",
            [Reply(calls=[("transfer_to_worker", {})]), LIST, Reply("DONE")],
            ["desk", "worker", "worker"],
        ),
        ("nested", [LIST, OK, Reply("Fine.")], ["worker", "worker", "planner"]),
        ("society", [LIST, OK, Reply("All fine.")], None),
        ("structured", [LIST, Reply(calls=[("Answer", {"text": "Fine."})])], None),
        (
            "magentic",
            [OK, OK, ledger("worker"), LIST, OK, ledger("worker", done=True), OK],
            None,
        ),
        ("boss", [Reply(calls=[("worker", {"task": "Look."})]), LIST, OK, OK], None),
    ],
)
def test_its_models_and_tools_are_led_to_training(
    tmp_path: Path, agent: str, script: list[Reply], who: list[str] | None
) -> None:
    found = run(tmp_path, agent, *script)
    assert found.reward is not None, found.reason
    acting = [call for call in results(found) if call[0] == "list_files"]
    assert acting == SEEN
    assert len(found.model_calls) == len(script)
    assert who is None or speakers(found) == who


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
def test_inputs_are_what_it_is_told_first(tmp_path: Path) -> None:
    told = f"{AUTHORED}:told"
    [found] = run_all(tmp_path, "clerk", list_then_answer, **{"agent.inputs": told})
    [request] = requests(1)
    message = found.model_calls[0].messages[-1]
    assert message["content"] == f"Please: {request.task.id}"
    wrong = f"{AUTHORED}:told_wrongly"
    [lost] = run_all(
        tmp_path / "w", "clerk", list_then_answer, **{"agent.inputs": wrong}
    )
    assert lost.status is RolloutStatus.DROPPED
    assert "gave an int" in str(lost.reason)


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
@pytest.mark.parametrize(
    ("agent", "settings", "told"),
    [
        ("nothing", {}, "gave a dict, not an agent"),
        ("gone", {}, "has no 'gone'"),
        ("clerk", {"agent.context": f"{AUTHORED}:told"}, "no runtime context"),
    ],
)
def test_what_cannot_be_trained_is_refused(
    tmp_path: Path, agent: str, settings: dict[str, Any], told: str
) -> None:
    with pytest.raises(RolloutError, match=told):
        run(tmp_path, agent, **settings)


@pytest.mark.slow
def test_a_ledger_that_names_no_speaker_is_the_policys_failure(tmp_path: Path) -> None:
    found = run(tmp_path, "magentic_pair", OK, OK, ledger("Santa"))
    assert found.reason is not None
    assert found.reason.kind == "wrong form"
    assert found.reward is not None
