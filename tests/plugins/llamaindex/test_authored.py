"""Rollouts of LlamaIndex's agents as their authors wrote them."""

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
HAND_OVER = Reply(calls=[("handoff", {"to_agent": "back", "reason": "?"})])

pytestmark = pytest.mark.slow  # each starts workers that import LlamaIndex


@pytest.mark.parametrize(
    ("agent", "script", "who"),
    [
        ("clerk", [LIST, OK], ["clerk", "clerk"]),
        ("bare", [LIST, OK], None),
        ("whole", [LIST, OK], None),
        ("typed", [LIST, OK, Reply(calls=[("Answer", FORM)])], None),
        ("desk", [HAND_OVER, LIST, OK], ["front", "back", "back"]),
        ("counted", [LIST, OK], None),
        (
            "boss",
            [Reply(calls=[("ask_clerk", {"question": "?"})]), LIST, OK, OK],
            ["boss", "clerk", "clerk", "boss"],
        ),
        ("served", [LIST, OK], ["served", "served"]),
        ("make_own", [LIST, OK], None),
        ("make_on", [LIST, OK], None),
        ("make_later", [LIST, OK], None),
    ],
)
def test_its_models_and_tools_are_led_to_training(
    tmp_path: Path, agent: str, script: list[Reply], who: list[str] | None
) -> None:
    found = run(tmp_path, "llamaindex", agent, *script)
    assert found.reward is not None, found.reason
    assert acting(found) == SEEN
    assert len(found.model_calls) == len(script)
    assert who is None or roles(found) == who


def test_a_state_is_that_of_an_episode(tmp_path: Path) -> None:
    def respond(request: ChatRequest) -> Reply:
        is_told = request.messages[-1]["role"] == "tool"
        return OK if is_told else Reply(calls=[("count", {})])

    done = run_all(tmp_path, "llamaindex", "counted", respond, 4, workers=1)
    assert [told_last(found) for found in done] == ["1"] * 4


def test_another_model_in_a_tool_is_the_policy_too(tmp_path: Path) -> None:
    ask = Reply(calls=[("ask_llm", {"question": "Why?"})])
    found = run(tmp_path, "llamaindex", "author", ask, Reply("So."), OK)
    assert found.model_calls[1].messages[-1]["content"] == "Why?"
    assert told_last(found) == "So."


def test_a_question_to_a_person_is_answered(tmp_path: Path) -> None:
    ask = Reply(calls=[("if_allowed", {})])
    found = run(tmp_path, "llamaindex", "asking", ask, OK)
    assert told_last(found) == "yes: the real tool ran"


def test_arguments_that_are_not_json_are_an_error(tmp_path: Path) -> None:
    found = run(tmp_path, "llamaindex", "clerk", Reply(calls=[("list_files", "{")]), OK)
    assert [call.outcome for call in found.get_tool_calls()] == ["malformed"]
    assert told_last(found).startswith("Error: the arguments are not a JSON object")
