"""Rollouts of LlamaIndex's agents as their authors wrote them."""

from pathlib import Path

import pytest

from agentgym.core.policy import ChatRequest
from agentgym.engines.scripted import Reply
from tests.integrations.authored_runs import (
    OK,
    run,
    run_all,
    told_last,
)

SEEN = [("list_files", "ok", True)]

pytestmark = pytest.mark.slow  # each starts workers that import LlamaIndex


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
