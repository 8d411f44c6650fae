"""Rollouts of smolagents' agents as their authors wrote them."""

import re
from pathlib import Path

import pytest

from agentgym.core.policy import ChatRequest
from agentgym.engines.scripted import Reply
from tests.integrations.authored_runs import LIST, acting, run, run_all
from tests.rollout.sessions import requests

SEEN = [("list_files", "ok", True)]
OK = Reply(calls=[("final_answer", {"answer": "Okay."})])

pytestmark = pytest.mark.slow  # each starts workers that import smolagents


def test_episodes_at_once_share_nothing(tmp_path: Path) -> None:
    def respond(request: ChatRequest) -> Reply:
        if len(request.messages) > 2:
            asked = re.search("New task:\n(.*)", str(request.messages[1]["content"]))
            assert asked is not None
            return Reply(calls=[("final_answer", {"answer": asked[1]})])
        return LIST

    done = run_all(tmp_path, "smolagents", "clerk", respond, 16, workers=1)
    for request, found in zip(requests(16), done, strict=True):
        said = found.get_tool_calls()[-1]
        answer = request.task.instruction.splitlines()[0]
        assert (said.name, said.arguments) == ("final_answer", {"answer": answer})
        assert acting(found) == SEEN


@pytest.mark.parametrize(
    ("agent", "tool", "live", "result"),
    [
        ("clerk", "shout", (), "HI"),
        ("clerk", "shout", ("shout",), "HI"),
        ("greeting", "greet", ("greet",), "Hi, you!"),
    ],
)
def test_its_own_tools_run(
    tmp_path: Path, agent: str, tool: str, live: tuple[str, ...], result: str
) -> None:
    call = Reply(calls=[(tool, {"word": "Hi"})])
    settings = {"agent.allow_tools": live} if live else {}
    found = run(tmp_path, "smolagents", agent, call, OK, **settings)
    assert str(found.model_calls[-1].messages[-1]["content"]).endswith(result)
    called = [(call.name, call.outcome) for call in found.get_tool_calls()]
    assert called[:1] == [(tool, "ok")]


def test_openais_own_client_in_a_tool_is_routed_too(tmp_path: Path) -> None:
    ask = Reply(calls=[("ask_openai", {"question": "Why?"})])
    found = run(tmp_path, "smolagents", "author", ask, Reply("So."), OK)
    assert found.model_calls[1].messages == [{"role": "user", "content": "Why?"}]


def test_arguments_that_are_not_json_are_an_error(tmp_path: Path) -> None:
    broken = Reply(calls=[("list_files", "{")])
    found = run(tmp_path, "smolagents", "clerk", broken, OK)
    assert [call.outcome for call in found.get_tool_calls()][:1] == ["malformed"]
