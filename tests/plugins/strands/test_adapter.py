"""Looking into agents of Strands, and giving trained ones back."""

import sys
from pathlib import Path
from typing import Any

import pytest

from agentgym.engines.scripted import Reply
from agentgym.integrations.agent_import import load_agent
from agentgym.plugins.strands import StrandsAdapter
from tests.integrations.exported import list_then_say, scripted, trained_in

AUTHORED = "tests.plugins.strands.authored"
ADAPTER = StrandsAdapter()


@pytest.fixture(scope="module")
def authored() -> Any:
    load_agent(f"{AUTHORED}:clerk")
    return sys.modules[AUTHORED]


async def test_its_own_tools_do_what_they_do(authored: Any) -> None:
    [shout] = ADAPTER.tools_of(authored.shout)
    assert await shout(word="ho") == "HO"


@pytest.mark.parametrize(
    ("name", "call"),
    [("boss", ("clerk", {"input": "?"})), ("leading", ("ask_anew", {"question": "?"}))],
)
def test_its_own_agents_come_back_with_the_trained_model_throughout(
    authored: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    call: tuple[str, dict[str, Any]],
) -> None:
    def respond(request: Any) -> Reply:
        last, system = request.messages[-1], request.messages[0]["content"]
        if system != "You lead.":
            return list_then_say(request)
        if last["role"] == "tool":
            return Reply(str(last["content"]))
        return Reply(calls=[call])

    asked = scripted(monkeypatch, respond)
    own = getattr(authored, name)
    agent = trained_in(tmp_path, "strands", f"{AUTHORED}:{name}").to_strands()
    assert type(agent) is type(own)
    assert authored.REAL in str(agent("Go."))  # sync, as in scripts
    assert len(asked) == 4
    assert (own.model, own.messages) == (authored.MODEL, [])
