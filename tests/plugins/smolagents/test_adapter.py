"""Looking into agents of smolagents, and giving trained ones back."""

import sys
from pathlib import Path
from typing import Any

import pytest

from agentgym.engines.scripted import Reply
from agentgym.errors import UnsupportedError
from agentgym.integrations.agent_import import load_agent
from agentgym.plugins.smolagents import SmolagentsAdapter
from tests.integrations.exported import list_then_say, scripted, trained_in

AUTHORED = "tests.plugins.smolagents.authored"
ADAPTER = SmolagentsAdapter()


@pytest.fixture(scope="module")
def authored() -> Any:
    load_agent(f"{AUTHORED}:clerk")
    return sys.modules[AUTHORED]


async def test_its_own_tools_do_what_they_do(authored: Any) -> None:
    [shout] = ADAPTER.tools_of(authored.clerk.tools["shout"])
    assert await shout(word="hey") == "HEY"
    [shout] = ADAPTER.tools_of(authored.shout)
    assert await shout(word="ho") == "HO"
    with pytest.raises(UnsupportedError, match="gave a dict, not an agent"):
        ADAPTER.require_agent(authored.nothing, "app:nothing")


def test_an_agent_that_writes_code_is_refused(authored: Any) -> None:
    for agent in (authored.coder, authored.leader):
        with pytest.raises(UnsupportedError, match=r"CodeAgent.*a ToolCallingAgent"):
            ADAPTER.require_agent(agent, "app:agent")


def test_its_own_agents_come_back_with_the_trained_model_throughout(
    authored: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def respond(request: Any) -> Reply:
        if "You lead." not in str(request.messages[0]["content"]):
            return list_then_say(request)
        if str(request.messages[-1]["content"]).startswith("Observation:"):
            return Reply(calls=[("final_answer", {"answer": "Done."})])
        return Reply(calls=[("clerk", {"task": "?"})])

    asked = scripted(monkeypatch, respond)
    trained = trained_in(tmp_path, "smolagents", f"{AUTHORED}:boss")
    agent = trained.to_smolagents()
    assert type(agent) is type(authored.boss)
    assert agent.run("Go.") == "Done."
    assert len(asked) == 4
    assert authored.boss.model is authored.clerk.model is authored.MODEL
    assert authored.boss.memory.steps == authored.clerk.memory.steps == []
