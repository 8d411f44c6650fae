"""Looking into agents of Google ADK, and giving trained ones back."""

import sys
from pathlib import Path
from typing import Any

import pytest

from agentgym.engines.scripted import Reply
from agentgym.integrations.agent_import import load_agent
from agentgym.plugins.adk import AdkAdapter
from tests.integrations.exported import list_then_say, scripted, trained_in

AUTHORED = "tests.plugins.adk.authored"
ADAPTER = AdkAdapter()


@pytest.fixture(scope="module")
def authored() -> Any:
    pytest.importorskip("google.adk", reason="ADK has an environment of its own")
    load_agent(f"{AUTHORED}:clerk")
    return sys.modules[AUTHORED]


async def ask(agent: Any, message: str) -> str:
    """Run an agent as ADK's users do, and return its last text."""
    from google.adk.runners import InMemoryRunner
    from google.genai import types

    runner = InMemoryRunner(agent, app_name="app")
    named = {"user_id": "me", "session_id": "one"}
    await runner.session_service.create_session(app_name="app", **named)
    said = types.Content(role="user", parts=[types.Part(text=message)])
    events = [event async for event in runner.run_async(new_message=said, **named)]
    return str(events[-1].content.parts[0].text)


async def test_its_own_tools_do_what_they_do(authored: Any) -> None:
    found = await authored.clerk.canonical_tools()
    [list_files, shout] = [t for each in found for t in ADAPTER.tools_of(each)]
    assert await list_files() == authored.REAL
    assert await shout(word="hey") == '{"status": "ok", "said": "HEY"}'


async def test_its_own_agents_come_back_with_the_trained_model_throughout(
    authored: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def respond(request: Any) -> Reply:
        last, system = request.messages[-1], str(request.messages[0]["content"])
        if "You lead." not in system:
            return list_then_say(request)
        if last["role"] == "tool":
            return Reply(str(last["content"]))
        return Reply(calls=[("helper", {"request": "?"})])

    asked = scripted(monkeypatch, respond)
    trained = trained_in(tmp_path, "adk", f"{AUTHORED}:boss")
    agent = trained.to_adk()
    assert type(agent) is type(authored.boss)
    assert await ask(agent, "Go.") == authored.REAL
    assert len(asked) == 4
    assert authored.boss.model == authored.MODEL
    desk = trained.to_adk(agent=authored.desk)
    assert desk.sub_agents[0].model is desk.model
    assert authored.desk.sub_agents[0].model == authored.MODEL
