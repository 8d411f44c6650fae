"""A trained agent as an AutoGen agent: in this process, and on a server."""

import threading
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.messages import (
    ToolCallExecutionEvent,
    ToolCallSummaryMessage,
)
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.models import CreateResult, LLMMessage, SystemMessage, UserMessage
from openai import OpenAIError

from agentgym.engines.scripted import Reply, ScriptedPolicy
from agentgym.errors import UnsupportedError
from agentgym.integrations.agent_import import load_agent
from agentgym.plugins.autogen import AutoGenAdapter
from agentgym.plugins.autogen.agents import TrainedClient
from agentgym.train.trained_agent import TrainedAgent
from tests.integrations.exported import trained_in

MAX_TURNS = 4
PROMPT = "You are a coding agent."


def look() -> str:
    """Look."""
    return "nothing"


def scripted(monkeypatch: pytest.MonkeyPatch, *replies: Reply) -> None:
    """Let the policy of every agent give these replies in turn."""
    script = iter(replies)
    policy = ScriptedPolicy(lambda _: next(script))
    monkeypatch.setattr(TrainedAgent, "load_policy", lambda _: policy)


async def test_it_calls_the_scenarios_tools_and_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = Reply(calls=[("read_file", {"file": "x"})])
    scripted(monkeypatch, wrong, Reply(calls=[("list_files", {})]), Reply("Done."))
    agent = trained_in(tmp_path, "autogen").to_autogen()
    assert isinstance(agent, AssistantAgent)
    result = await agent.run(task="List them.")
    told = [
        done.content
        for message in result.messages
        if isinstance(message, ToolCallExecutionEvent)
        for done in message.content
    ]
    assert told[0].startswith("Error: path")
    assert ".py" in told[1]
    assert result.messages[-1].to_text() == "Done."


async def test_it_ends_after_as_many_model_calls_as_in_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted(monkeypatch, *[Reply(calls=[("look", {})])] * MAX_TURNS)
    agent = trained_in(tmp_path, "autogen", scenario="my-pack").to_autogen(tools=[look])
    assert agent.name == "my_pack"
    result = await agent.run(task="Look.")
    assert isinstance(result.messages[-1], ToolCallSummaryMessage)


async def test_a_factory_makes_the_team(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted(monkeypatch, Reply("Look."), Reply(calls=[("look", {})]), Reply("DONE"))
    trained = trained_in(tmp_path, "autogen", "tests.plugins.autogen.teams:make_pair")
    team = trained.to_autogen(tools=[look])
    assert isinstance(team, RoundRobinGroupChat)
    assert (await team.run(task="Go.")).messages[-1].to_text() == "DONE"
    broken = trained.spec.model_copy(
        update={"agent": "tests.plugins.autogen.teams:make_nothing"}
    )
    with pytest.raises(UnsupportedError, match="make_nothing gave a function"):
        trained.model_copy(update={"spec": broken}).to_autogen(tools=[])


@pytest.mark.parametrize("name", ["clerk", "make_own", "make_on"])
async def test_an_agent_comes_back_as_its_author_wrote_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    scripted(monkeypatch, Reply(calls=[("list_files", {})]), Reply("Done."))
    reference = f"tests.plugins.autogen.authored:{name}"
    found = load_agent(reference)
    before = dict(vars(found))
    agent = trained_in(tmp_path, "autogen", reference).to_autogen()
    assert type(agent) is AssistantAgent
    assert agent is not found
    benches: Any = agent
    offered = [each.name for each in benches._workbench[0]._tools]
    assert offered == ["list_files", "shout"][: 1 if name == "make_on" else 2]
    result = await agent.run(task="List them.")
    assert "the real tool ran" in str(result.messages)
    assert result.messages[-1].to_text() == "Done."
    assert vars(found) == before


async def test_a_team_comes_back_with_its_control_flow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    over = Reply(calls=[("transfer_to_worker", {})])
    scripted(monkeypatch, over, Reply(calls=[("list_files", {})]), Reply("DONE"))
    swarm = load_agent("tests.plugins.autogen.authored:swarm")
    made = AutoGenAdapter().wrap_agent(trained_in(tmp_path, "autogen"), agent=swarm)
    assert type(made) is type(swarm)
    result = await made.run(task="List them.")
    kinds = [type(message).__name__ for message in result.messages]
    assert "HandoffMessage" in kinds
    assert result.messages[-1].to_text() == "DONE"
    assert "the real tool ran" in str(result.messages)


async def test_the_policy_streams_counts_and_closes(tmp_path: Path) -> None:
    trained = trained_in(tmp_path, "autogen")
    client = AutoGenAdapter().trained_model(trained)
    assert isinstance(client, TrainedClient)
    asked: list[LLMMessage] = [
        SystemMessage(content=PROMPT),
        UserMessage(content="Say hello.", source="user"),
    ]
    whole = await client.create(asked)
    pieces = [piece async for piece in client.create_stream(asked)]
    assert isinstance(pieces[-1], CreateResult)
    if isinstance(whole.content, str):
        assert "".join(map(str, pieces[:-1])) == whole.content
    count = client.count_tokens(asked)
    assert count == whole.usage.prompt_tokens
    room = client.remaining_tokens(asked)
    assert room > client.remaining_tokens([*asked, asked[-1]]) > 0
    await client.close()
    await client.close()
    with pytest.raises(OpenAIError):
        await client.create(asked)


def decoders() -> set[threading.Thread]:
    """Return all threads but those of OpenAI's client, which end with the loop."""
    return {t for t in threading.enumerate() if not t.name.startswith("asyncio_")}
