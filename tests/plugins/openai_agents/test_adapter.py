"""Looking into agents of the OpenAI Agents SDK, and giving trained ones back."""

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

import pytest

from agentgym.engines.scripted import Reply
from agentgym.errors import UnsupportedError
from agentgym.integrations.agent_import import load_agent
from agentgym.plugins import openai_agents
from agentgym.plugins.openai_agents import OpenAIAgentsAdapter
from tests.integrations.exported import list_then_say, scripted, trained_in

AUTHORED = "tests.plugins.openai_agents.authored"
ADAPTER = OpenAIAgentsAdapter()


@pytest.fixture(scope="module")
def authored() -> Any:
    load_agent(f"{AUTHORED}:clerk")
    return sys.modules[AUTHORED]


@pytest.fixture
def runner() -> Any:
    from agents import Runner

    return Runner


async def test_its_own_tools_do_what_they_do(authored: Any) -> None:
    [shout] = ADAPTER.tools_of(authored.clerk.tools[1])
    assert await shout(word="hey") == "HEY"
    [leave] = ADAPTER.tools_of(authored.quit_all)
    with pytest.raises(RuntimeError, match=r"quit_all called sys.exit\(3\)"):
        await leave()
    with pytest.raises(UnsupportedError, match="cannot take tools from"):
        ADAPTER.tools_of(authored.judge)


async def test_arguments_with_a_default_may_be_left_out(authored: Any) -> None:
    [tool] = ADAPTER.tools_of(authored.labelling.tools[0])
    assert tool.spec.parameters["required"] == ["word"]
    assert await tool(word="so") == "soso"


async def test_a_trained_agent_streams(
    runner: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted(monkeypatch, list_then_say)
    agent = trained_in(tmp_path, "openai_agents").to_openai_agents()
    streamed = runner.run_streamed(agent, "List them.")
    async for _ in streamed.stream_events():
        pass
    assert ".py" in streamed.final_output


async def test_its_own_agent_comes_back_with_the_trained_model_throughout(
    runner: Any, authored: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def respond(request: Any) -> Reply:
        if request.messages[0]["content"] == "You send on.":
            return Reply(calls=[("transfer_to_clerk", {})])
        if {"role": "system", "content": "Is it homework?"} in request.messages:
            return Reply(calls=[("final_output", {"is_homework": False})])
        if ".py" not in str(request.messages) and authored.REAL not in str(
            request.messages
        ):
            return Reply(calls=[("list_files", {})])
        return Reply(str(request.messages[-1]["content"]))

    asked = scripted(monkeypatch, respond)
    inside = {key: id(value) for key, value in vars(authored.desk).items()}
    trained = trained_in(tmp_path, "openai_agents", f"{AUTHORED}:desk")
    agent = trained.to_openai_agents()
    assert type(agent) is type(authored.desk)
    assert agent is not authored.desk
    result = await runner.run(agent, "Go.")
    assert result.final_output == authored.REAL
    assert result.last_agent.name == "clerk"
    assert result.last_agent is not authored.clerk
    assert len(asked) == 3
    assert {key: id(value) for key, value in vars(authored.desk).items()} == inside
    guarded = trained.to_openai_agents(agent=authored.guarded)
    monkeypatch.setattr(authored.judge, "model", agent.model)  # its guardrail's own
    assert (await runner.run(guarded, "?")).final_output == authored.REAL


def test_a_module_of_the_users_that_is_named_agents_is_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = tmp_path / "agents.py"
    theirs.write_text("def make(): ...")
    monkeypatch.setattr(import_module("agents"), "__file__", str(theirs))
    assert not ADAPTER.owns("agents")
    monkeypatch.undo()
    assert ADAPTER.owns("agents")
    found = ModuleSpec("agents", None, origin=str(theirs))
    monkeypatch.setattr(openai_agents, "find_spec", lambda name: found)
    with pytest.raises(UnsupportedError, match=r"agents\.py hides the package"):
        ADAPTER.check()
