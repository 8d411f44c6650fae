"""Rollouts of Agent Framework's agents and workflows as their authors wrote them."""

import re
from pathlib import Path
from typing import Any

import pytest

from agentgym.core.policy import ChatRequest
from agentgym.core.trajectory import RolloutStatus
from agentgym.engines.scripted import Reply
from agentgym.errors import RolloutError
from tests.integrations.authored_runs import (
    LIST,
    OK,
    acting,
    roles,
    run,
    run_all,
    told_last,
)
from tests.rollout.sessions import requests

AUTHORED = "tests.integrations.agent_framework.authored"
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


def test_a_middleware_of_the_authors_is_part_of_it(tmp_path: Path) -> None:
    found = run(tmp_path, "agent_framework", "reminded", OK)
    assert told_last(found) == "Be quick."


def test_episodes_at_once_share_nothing(tmp_path: Path) -> None:
    def respond(request: ChatRequest) -> Reply:
        if request.messages[-1]["role"] == "tool":
            return Reply(str(request.messages[1]["content"]))
        return LIST

    for agent in ("clerk", "counted"):
        folder = tmp_path / agent
        done = run_all(folder, "agent_framework", agent, respond, 32, workers=1)
        for request, found in zip(requests(32), done, strict=True):
            assert found.model_calls[-1].content == request.task.instruction
            assert acting(found) == SEEN


def test_openais_own_client_in_a_tool_is_led_too(tmp_path: Path) -> None:
    ask = Reply(calls=[("ask_openai", {"question": "Why?"})])
    found = run(tmp_path, "agent_framework", "author", ask, Reply("So."), OK)
    assert found.model_calls[1].messages == [{"role": "user", "content": "Why?"}]
    assert told_last(found) == "So."


def test_tools_that_the_episode_does_not_have_run_as_they_are(tmp_path: Path) -> None:
    shouting = Reply(calls=[("shout", {"word": "hey"})])
    found = run(tmp_path, "agent_framework", "clerk", shouting, OK)
    assert told_last(found) == "HEY"


def test_a_live_tool_runs_in_its_place_with_its_context(tmp_path: Path) -> None:
    greeting = Reply(calls=[("greet", {"word": "Hi"})])
    found = run(
        tmp_path, "agent_framework", "greeting", greeting, allow_tools=("greet",)
    )
    assert told_last(found) == "Hi, you!"
    [call] = found.get_tool_calls()
    assert (call.name, call.outcome) == ("greet", "ok")


def test_inputs_are_what_it_is_told_first(tmp_path: Path) -> None:
    given = {"inputs": f"{AUTHORED}:first"}
    found = run(tmp_path, "agent_framework", "chain", OK, **given)
    message = found.model_calls[0].messages[-1]
    assert message["content"] == f"Please: {requests(1)[0].task.id}"


@pytest.mark.parametrize(
    ("agent", "reason"),
    [
        ("breaking", "the agent is broken"),
        ("exiting", r"sys\.exit\(3\)|exit code 3"),
        ("deaf", "ended without calling the model"),
    ],
)
def test_what_goes_wrong_drops_the_episode_and_says_why(
    tmp_path: Path, agent: str, reason: str
) -> None:
    found = run(tmp_path, "agent_framework", agent)
    assert found.status is RolloutStatus.DROPPED
    assert re.search(reason, str(found.reason)), found.reason


@pytest.mark.parametrize(
    ("agent", "settings", "told"),
    [
        ("nothing", {}, "gave a dict, not an agent"),
        ("gone", {}, "has no 'gone'"),
        ("clerk", {"context": f"{AUTHORED}:first"}, "no runtime context"),
    ],
)
def test_what_cannot_be_trained_is_refused(
    tmp_path: Path, agent: str, settings: dict[str, Any], told: str
) -> None:
    with pytest.raises(RolloutError, match=told):
        run(tmp_path, "agent_framework", agent, **settings)
