"""Rollouts of Strands' agents as their authors wrote them."""

from pathlib import Path

import pytest

from agentgym.core.policy import ChatRequest
from agentgym.engines.scripted import Reply
from tests.integrations.authored_runs import (
    LIST,
    OK,
    acting,
    run,
    run_all,
    told_last,
)

SEEN = [("list_files", "ok", True)]

pytestmark = pytest.mark.slow  # each starts workers that import Strands


def test_a_state_is_that_of_an_episode(tmp_path: Path) -> None:
    def respond(request: ChatRequest) -> Reply:
        is_told = request.messages[-1]["role"] == "tool"
        return OK if is_told else Reply(calls=[("count", {})])

    done = run_all(tmp_path, "strands", "counted", respond, 4, workers=1)
    assert [told_last(found) for found in done] == ["1"] * 4


def test_a_session_is_not_saved_by_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = run(tmp_path / "run", "strands", "make_saved", LIST, OK)
    assert acting(found) == SEEN
    assert not [*tmp_path.glob("sessions/**/message_*")]


@pytest.mark.parametrize("live", [(), ("if_allowed",)])
def test_a_question_to_a_person_is_answered(
    tmp_path: Path, live: tuple[str, ...]
) -> None:
    ask = Reply(calls=[("if_allowed", {})])
    settings = {"agent.allow_tools": live}
    found = run(tmp_path, "strands", "asking", ask, OK, **settings)
    assert told_last(found) == "yes: the real tool ran"


def test_arguments_that_are_not_json_are_an_error(tmp_path: Path) -> None:
    broken = Reply(calls=[("list_files", "{")])
    found = run(tmp_path, "strands", "clerk", broken, OK)
    assert [call.outcome for call in found.get_tool_calls()] == ["malformed"]
    assert told_last(found).startswith("Error: the arguments are not a JSON object")
    said = found.model_calls[-1].messages[-2]["tool_calls"][0]["function"]
    assert said["arguments"] == "{"
