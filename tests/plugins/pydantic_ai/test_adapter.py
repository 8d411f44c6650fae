"""Looking into agents of pydantic-ai, and giving trained ones back."""

import sys
from pathlib import Path
from typing import Any

import pytest

from agentgym.engines.scripted import Reply
from agentgym.errors import UnsupportedError
from agentgym.integrations.agent_import import load_agent
from agentgym.plugins.pydantic_ai import PydanticAIAdapter
from tests.integrations.exported import list_then_say, scripted, trained_in

AUTHORED = "tests.plugins.pydantic_ai.authored"
ADAPTER = PydanticAIAdapter()


@pytest.fixture(scope="module")
def authored() -> Any:
    load_agent(f"{AUTHORED}:clerk")
    return sys.modules[AUTHORED]


async def test_its_own_tools_do_what_they_do(authored: Any) -> None:
    [shout] = ADAPTER.tools_of(authored.named.toolsets[-1])
    assert (shout.spec.name, await shout(word="ho")) == ("my_shout", "HO")
    [made] = ADAPTER.tools_of(authored.toolset)
    assert made.spec.name == "list_files"
    with pytest.raises(UnsupportedError, match="cannot take tools from"):
        ADAPTER.tools_of(authored.clerk)


def test_an_mcp_server_that_does_not_start_is_named(authored: Any) -> None:
    from fastmcp.client.transports import StdioTransport  # takes a second
    from pydantic_ai.mcp import MCPToolset

    server = MCPToolset(StdioTransport(command="no-such-command", args=[]))
    wanted = r"tools of .*MCPToolset.* cannot be listed.*Error: .*'no-such-command'"
    with pytest.raises(UnsupportedError, match=wanted):
        ADAPTER.tools_of(server)


async def test_a_trained_agent_streams(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scripted(monkeypatch, lambda _: Reply("There are two."))
    agent = trained_in(tmp_path, "pydantic_ai").to_pydantic_ai()
    async with agent.run_stream("How many?") as streamed:
        text = streamed.stream_text(delta=True, debounce_by=None)
        pieces = [piece async for piece in text]
    assert len(pieces) > 1
    assert "".join(pieces).strip() == "There are two."


async def test_its_own_agent_comes_back_with_the_trained_model_throughout(
    authored: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def respond(request: Any) -> Reply:
        if request.messages[0]["content"] == "You lead.":
            done = request.messages[-1]["role"] == "tool"
            asks = Reply(calls=[("ask_clerk", {"question": "?"})])
            return Reply(str(request.messages[-1]["content"])) if done else asks
        return list_then_say(request)

    asked = scripted(monkeypatch, respond)
    inside = {key: id(value) for key, value in vars(authored.boss).items()}
    trained = trained_in(tmp_path, "pydantic_ai", f"{AUTHORED}:boss")
    agent = trained.to_pydantic_ai()
    assert type(agent) is type(authored.boss)
    assert agent is not authored.boss
    assert (await agent.run("Go.")).output == authored.REAL
    assert len(asked) == 4
    assert {key: id(value) for key, value in vars(authored.boss).items()} == inside
    mine = authored.make_own()
    assert (await trained.to_pydantic_ai(agent=mine).run("?")).output == authored.REAL
