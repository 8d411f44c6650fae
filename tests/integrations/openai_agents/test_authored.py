"""Rollouts of agents of the OpenAI Agents SDK as their authors wrote them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from agentgym.core.policy import ChatRequest
from agentgym.core.trajectory import RolloutStatus
from agentgym.engines.scripted import Reply
from tests.integrations.authored_runs import (
    LIST,
    OK,
    acting,
    roles,
    run,
    run_all,
)

AUTHORED = "tests.integrations.openai_agents.authored"
SEEN = [("list_files", "ok", True)]
TWO = ["desk", "clerk", "clerk"]
FORM = {"text": "Two.", "files": 2}

pytestmark = pytest.mark.slow  # each starts workers that import the Agents SDK


def by_role(request: ChatRequest) -> Reply:
    """Judge what the user says; list the files, then answer with a secret."""
    if "homework" in str(request.messages[0]["content"]):
        return Reply(calls=[("final_output", {"is_homework": False})])
    if request.messages[-1]["role"] == "tool":
        return Reply("It is a secret.")
    return LIST


@pytest.mark.parametrize(
    ("agent", "script", "who"),
    [
        ("clerk", [LIST, OK], ["clerk", "clerk"]),
        ("desk", [Reply(calls=[("transfer_to_clerk", {})]), LIST, OK], TWO),
        ("noted", [Reply(calls=[("transfer_to_clerk", {})]), LIST, OK], None),
        (
            "circle",
            [
                Reply(calls=[("transfer_to_worker", {})]),
                LIST,
                Reply(calls=[("transfer_to_circle", {})]),
                OK,
            ],
            ["circle", "worker", "worker", "circle"],
        ),
        (
            "boss",
            [Reply(calls=[("ask_clerk", {"input": "?"})]), LIST, OK, OK],
            ["boss", "clerk", "clerk", "boss"],
        ),
        ("typed", [LIST, Reply(calls=[("final_output", FORM)])], None),
        ("knowing", [LIST, OK], None),
        ("approved", [LIST, OK], None),
        ("searching", [LIST, OK], None),
        ("guarded", by_role, None),
        ("make_own", [LIST, OK], None),
        ("make_on", [LIST, OK], None),
        ("make_later", [LIST, OK], None),
    ],
)
def test_its_models_and_tools_are_led_to_training(
    tmp_path: Path,
    agent: str,
    script: list[Reply] | Callable[[ChatRequest], Reply],
    who: list[str] | None,
) -> None:
    context = {"context": f"{AUTHORED}:user"} if agent == "knowing" else {}
    if isinstance(script, list):
        found = run(tmp_path, "openai_agents", agent, *script, **context)
        assert len(found.model_calls) == len(script)
        assert who is None or roles(found) == who
    else:  # a guardrail asks while the agent does
        [found] = run_all(tmp_path, "openai_agents", agent, script, 1)
        assert sorted(roles(found)) == ["guarded", "guarded", "judge"]
    assert found.reward is not None, found.reason
    assert acting(found) == SEEN


def test_a_text_where_a_form_is_wanted_counts_as_the_models_failure(
    tmp_path: Path,
) -> None:
    found = run(tmp_path, "openai_agents", "typed", LIST, OK, OK)
    assert found.status is RolloutStatus.FAILED
    assert str(found.reason).startswith("wrong form")
    assert found.reward is not None
