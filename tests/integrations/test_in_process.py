"""A policy in this process is asked as a server of the same weights is asked."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agentgym.core.policy import ChatRequest
from agentgym.engines.scripted import Reply, ScriptedPolicy
from agentgym.serving.server import AgentServer
from tests.integrations.exported import list_then_say, scripted, trained_in

TASK = "List the files."


def run(framework: str, agent: Any) -> str:
    if framework == "langchain":
        state = agent.invoke({"messages": [("user", TASK)]})
        return str(state["messages"][-1].text)
    if framework == "autogen":
        return str(asyncio.run(agent.run(task=TASK)).messages[-1].to_text())
    return str(agent.kickoff(TASK).raw)


@pytest.mark.filterwarnings("ignore::DeprecationWarning:crewai")
@pytest.mark.parametrize("framework", ["langchain", "autogen", "crewai"])
def test_it_is_asked_like_a_server_and_needs_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, framework: str
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    here = scripted(monkeypatch, list_then_say)
    trained = trained_in(tmp_path, framework)
    with monkeypatch.context() as patch:
        patch.setenv("OPENAI_PROXY", "http://127.0.0.1:9")
        agent = getattr(trained, f"to_{framework}")()
    said = run(framework, agent)
    assert ".py" in said

    served: list[ChatRequest] = []

    def respond(request: ChatRequest) -> Reply:
        served.append(request)
        return list_then_say(request)

    with AgentServer(["coding"]).start(ScriptedPolicy(respond)) as server:
        agent = getattr(trained, f"to_{framework}")(base_url=server.url)
        assert run(framework, agent) == said
    assert len(here) == len(served) == 2
    for mine, theirs in zip(here, served, strict=True):
        assert mine.tools == theirs.tools
        has_strict = "strict" in mine.tools[0]["function"]
        assert has_strict == (framework == "crewai")  # as in training
        assert [*map(str, mine.messages)][:2] == [*map(str, theirs.messages)][:2]
        assert (mine.temperature, mine.max_tokens) == (0.0, 40)
    assert [request.seed for request in here] == [0, 1]
