"""Rollouts of Strands' agents as their authors wrote them."""

from pathlib import Path

import pytest

from agentgym.core.policy import ChatRequest
from agentgym.engines.scripted import Reply
from tests.integrations.authored_runs import (
    LIST,
    OK,
    acting,
    roles,
    run,
    run_all,
    told_last,
)

SEEN = [("list_files", "ok", True)]
FORM = {"text": "Two.", "files": 2}

pytestmark = pytest.mark.slow  # each starts workers that import Strands


@pytest.mark.parametrize(
    ("agent", "script", "who"),
    [
        ("clerk", [LIST, OK], ["clerk", "clerk"]),
        ("bare", [LIST, OK], None),
        ("on_bedrock", [LIST, OK], None),
        ("typed", [LIST, Reply(calls=[("Answer", FORM)])], None),
        (
            "boss",
            [Reply(calls=[("clerk", {"input": "?"})]), LIST, OK, OK],
            ["boss", "clerk", "clerk", "boss"],
        ),
        (
            "leading",
            [Reply(calls=[("ask_anew", {"question": "?"})]), LIST, OK, OK],
            ["leading", "clerk", "clerk", "leading"],
        ),
        ("make_own", [LIST, OK], None),
        ("make_on", [LIST, OK], None),
        ("make_later", [LIST, OK], None),
    ],
)
def test_its_models_and_tools_are_led_to_training(
    tmp_path: Path, agent: str, script: list[Reply], who: list[str] | None
) -> None:
    found = run(tmp_path, "strands", agent, *script)
    assert found.reward is not None, found.reason
    assert acting(found) == SEEN
    assert len(found.model_calls) == len(script)
    assert who is None or roles(found) == who


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
