"""Rollouts of agents of the OpenAI Agents SDK as their authors wrote them."""

from pathlib import Path

import pytest

from agentgym.core.tools import ToolOutcome
from agentgym.core.trajectory import RolloutStatus
from agentgym.engines.scripted import Reply
from tests.integrations.authored_runs import LIST, OK, acting, roles, run

AUTHORED = "tests.plugins.openai_agents.authored"
SEEN = [("list_files", "ok", True)]
TWO = ["desk", "clerk", "clerk"]
FORM = {"text": "Two.", "files": 2}

pytestmark = pytest.mark.slow  # each starts workers that import the Agents SDK


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
        ("guarded", [LIST, Reply("It is a secret.")], ["guarded", "guarded"]),
        ("make_own", [LIST, OK], None),
        ("make_on", [LIST, OK], None),
        ("make_later", [LIST, OK], None),
    ],
)
def test_its_models_and_tools_are_led_to_training(
    tmp_path: Path, agent: str, script: list[Reply], who: list[str] | None
) -> None:
    context = {"agent.context": f"{AUTHORED}:user"} if agent == "knowing" else {}
    found = run(tmp_path, "openai_agents", agent, *script, **context)
    assert len(found.model_calls) == len(script)
    assert who is None or roles(found) == who
    assert found.reward is not None, found.reason
    assert acting(found) == SEEN


def test_a_call_that_a_guardrail_stops_does_not_count_as_made(tmp_path: Path) -> None:
    found = run(tmp_path, "openai_agents", "barred", LIST)
    assert found.reward is not None, found.reason
    [call] = found.get_tool_calls()
    assert call.outcome is ToolOutcome.RAISED


def test_a_text_where_a_form_is_wanted_counts_as_the_models_failure(
    tmp_path: Path,
) -> None:
    found = run(tmp_path, "openai_agents", "typed", LIST, OK, OK)
    assert found.status is RolloutStatus.FAILED
    assert str(found.reason).startswith("wrong form")
    assert found.reward is not None
