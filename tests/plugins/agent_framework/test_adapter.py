"""Looking into Agent Framework's agents and workflows, and giving trained ones back."""

import sys
from pathlib import Path
from typing import Any

import pytest

from agentgym.engines.scripted import Reply
from agentgym.integrations.agent_import import load_agent
from agentgym.plugins.agent_framework import AgentFrameworkAdapter
from tests.integrations.exported import list_then_say, scripted, trained_in

AUTHORED = "tests.plugins.agent_framework.authored"
ADAPTER = AgentFrameworkAdapter()


@pytest.fixture(scope="module")
def authored() -> Any:
    load_agent(f"{AUTHORED}:clerk")
    return sys.modules[AUTHORED]


async def test_its_own_tools_do_what_they_do(authored: Any) -> None:
    shout = next(x for x in tools_of(authored.clerk) if x.spec.name == "shout")
    assert await shout(word="hey") == "HEY"
    [leave] = ADAPTER.tools_of(authored.quit_all)
    with pytest.raises(RuntimeError, match=r"quit_all called sys.exit\(3\)"):
        await leave()


def tools_of(agent: Any) -> list[Any]:
    held = agent.default_options["tools"]
    return [tool for each in held for tool in ADAPTER.tools_of(each)]


async def test_a_trained_agent_streams(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted(monkeypatch, list_then_say)
    agent = trained_in(tmp_path, "agent_framework").to_agent_framework()
    pieces = [piece.text async for piece in agent.run("List them.", stream=True)]
    assert ".py" in "".join(pieces)


async def test_its_own_agent_comes_back_with_the_trained_model_throughout(
    authored: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def respond(request: Any) -> Reply:
        names = [tool["function"]["name"] for tool in request.tools]
        if names == ["ask_clerk"] and request.messages[-1]["role"] != "tool":
            return Reply(calls=[("ask_clerk", {"question": "?"})])
        return list_then_say(request)

    asked = scripted(monkeypatch, respond)
    inside = {key: id(value) for key, value in vars(authored.boss).items()}
    trained = trained_in(tmp_path, "agent_framework", f"{AUTHORED}:boss")
    agent = trained.to_agent_framework()
    assert type(agent) is type(authored.boss)
    assert agent is not authored.boss
    session = agent.create_session()
    said = (await agent.run("Go.", session=session)).text
    assert said.strip() == authored.REAL  # the script streams its words
    assert len(asked) == 4
    await agent.run("Again.", session=session)
    assert "Go." in str(asked[4].messages)
    assert {key: id(value) for key, value in vars(authored.boss).items()} == inside
    assert authored.boss.context_providers == []


async def test_a_workflow_comes_back_as_a_workflow(
    authored: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = scripted(
        monkeypatch, lambda r: list_then_say(r) if r.tools else Reply("Look.")
    )
    trained = trained_in(tmp_path, "agent_framework", f"{AUTHORED}:chain")
    workflow = trained.to_agent_framework()
    assert type(workflow) is type(authored.chain)
    assert workflow is not authored.chain
    assert (await workflow.run("Go.")).get_outputs()[-1] == authored.REAL
    assert len(asked) == 3


async def test_a_hand_off_workflow_comes_back_and_hands_over(
    authored: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def respond(request: Any) -> Reply:
        names = [tool["function"]["name"] for tool in request.tools]
        if "list_files" not in names:
            return Reply(calls=[("handoff_to_expert", {})])
        return list_then_say(request)

    scripted(monkeypatch, respond)
    trained = trained_in(tmp_path, "agent_framework", f"{AUTHORED}:handed")
    ended = await trained.to_agent_framework().run("Go.")
    [waiting] = ended.get_request_info_events()
    assert waiting.data.agent_response.text == authored.REAL
