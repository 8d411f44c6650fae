"""Rollouts of Agent Framework's agents and workflows as their authors wrote them."""

from pathlib import Path

import pytest

from agentgym.engines.scripted import Reply
from tests.integrations.authored_runs import LIST, OK, acting, roles, run, told_last

AUTHORED = "tests.plugins.agent_framework.authored"
SEEN = [("list_files", "ok", True)]
FORM = {"text": "Two.", "files": 2}
LED = ["boss", "clerk", "clerk", "boss"]
PLAN = Reply("Look.")

pytestmark = pytest.mark.slow  # each starts workers that import Agent Framework


@pytest.mark.parametrize(
    ("agent", "script", "who"),
    [
        ("clerk", [LIST, OK], ["clerk", "clerk"]),
        ("chatty", [LIST, OK], ["agent", "agent"]),
        ("boss", [Reply(calls=[("ask_clerk", {"question": "?"})]), LIST, OK, OK], LED),
        ("typed", [LIST, Reply(calls=[("Answer", FORM)])], None),
        ("thinking", [LIST, OK], None),
        ("searching", [LIST, OK], None),
        ("approved", [LIST, OK], None),
        ("reminded", [LIST, OK], None),
        ("chain", [PLAN, LIST, OK], ["planner", "worker", "worker"]),
        ("asked", [LIST, OK], ["worker", "worker"]),
        ("counted", [LIST, OK], ["worker", "worker"]),
        ("sequence", [PLAN, LIST, OK], ["planner", "worker", "worker"]),
        (
            "handed",
            [Reply(calls=[("handoff_to_expert", {})]), LIST, OK],
            ["desk", "expert", "expert"],
        ),
        ("make_own", [LIST, OK], None),
        ("make_on", [LIST, OK], None),
        ("make_later", [LIST, OK], None),
        ("make_workflow", [LIST, OK], None),
    ],
)
def test_its_models_and_tools_are_led_to_training(
    tmp_path: Path, agent: str, script: list[Reply], who: list[str] | None
) -> None:
    found = run(tmp_path, "agent_framework", agent, *script)
    assert found.reward is not None, found.reason
    assert acting(found) == SEEN
    assert len(found.model_calls) == len(script)
    assert who is None or roles(found) == who


def test_a_question_without_a_user_is_answered(tmp_path: Path) -> None:
    found = run(tmp_path, "agent_framework", "asked", LIST, OK)
    assert found.reason is not None
    assert found.reason.kind == "goal not reached"  # not "interrupt"


def test_a_middleware_of_the_authors_is_part_of_it(tmp_path: Path) -> None:
    found = run(tmp_path, "agent_framework", "reminded", OK)
    assert told_last(found) == "Be quick."
