"""A policy in this process is asked as a server of the same weights is asked."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from agentgym.core.policy import ChatRequest
from agentgym.engines.scripted import Reply, ScriptedPolicy
from agentgym.errors import UsageError
from agentgym.integrations.registry import is_installed
from agentgym.serving.server import AgentServer
from tests.integrations.exported import list_then_say, scripted, trained_in

TASK = "List the files."
FRAMEWORKS = (
    *("adk", "agent_framework", "autogen", "crewai", "langchain", "llamaindex"),
    *("openai_agents", "pydantic_ai", "smolagents", "strands"),
)
WITH_SYSTEM_PROMPT = {*FRAMEWORKS} - {"adk", "crewai"}

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:crewai")


async def ask(framework: str, agent: Any) -> Any:
    """Run an agent as users of its framework do, and return its answer."""
    match framework:
        case "adk":
            return await ask_adk(agent)
        case "agent_framework":
            return (await agent.run(TASK)).text
        case "autogen":
            return (await agent.run(task=TASK)).messages[-1].to_text()
        case "crewai":
            return (await agent.kickoff_async(TASK)).raw
        case "langchain":
            state = await agent.ainvoke({"messages": [("user", TASK)]})
            return state["messages"][-1].text
        case "llamaindex":
            return await agent.run(TASK)
        case "openai_agents":
            from agents import Runner

            return (await Runner.run(agent, TASK)).final_output
        case "pydantic_ai":
            return (await agent.run(TASK)).output
        case "smolagents":
            return await asyncio.to_thread(agent.run, TASK)
    return await agent.invoke_async(TASK)


async def ask_adk(agent: Any) -> str:
    from google.adk.runners import InMemoryRunner
    from google.genai import types

    runner = InMemoryRunner(agent, app_name="app")
    named = {"user_id": "me", "session_id": "one"}
    await runner.session_service.create_session(app_name="app", **named)
    said = types.Content(role="user", parts=[types.Part(text=TASK)])
    events = [event async for event in runner.run_async(new_message=said, **named)]
    return str(events[-1].content.parts[0].text)


@pytest.fixture(params=FRAMEWORKS)
def framework(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    if name == "adk" and not is_installed("google.adk"):
        pytest.skip("ADK has an environment of its own")
    return name


def test_it_is_asked_like_a_server_and_needs_no_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, framework: str
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    here = scripted(monkeypatch, list_then_say)
    trained = trained_in(tmp_path, framework)
    with monkeypatch.context() as patch:
        patch.setenv("OPENAI_PROXY", "http://127.0.0.1:9")
        agent = getattr(trained, f"to_{framework}")()
    said = str(asyncio.run(ask(framework, agent)))
    assert ".py" in said

    served: list[ChatRequest] = []

    def respond(request: ChatRequest) -> Reply:
        served.append(request)
        return list_then_say(request)

    with AgentServer(["coding"]).start(ScriptedPolicy(respond)) as server:
        agent = getattr(trained, f"to_{framework}")(base_url=server.url)
        assert str(asyncio.run(ask(framework, agent))) == said
    assert len(here) == len(served) == 2
    for mine, theirs in zip(here, served, strict=True):
        assert mine.tools == theirs.tools
        has_strict = "strict" in mine.tools[0]["function"]
        assert has_strict == (framework == "crewai")  # as in training
        assert [*map(str, mine.messages)][:2] == [*map(str, theirs.messages)][:2]
        assert (mine.temperature, mine.max_tokens) == (0.0, 40)
        if framework in WITH_SYSTEM_PROMPT:
            assert mine.messages[0] == {"role": "system", "content": "You code."}
    assert [request.seed for request in here] == [0, 1]


def test_a_factory_is_given_the_model_and_the_tools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, framework: str
) -> None:
    if framework == "langchain":
        pytest.skip("its agents are elsewhere")
    scripted(monkeypatch, list_then_say)
    trained = trained_in(
        tmp_path, framework, f"tests.plugins.{framework}.authored:make_later"
    )
    agent = getattr(trained, f"to_{framework}")()
    assert ".py" in str(asyncio.run(ask(framework, agent)))


def test_tools_of_its_own_cannot_be_replaced(tmp_path: Path, framework: str) -> None:
    if framework == "langchain":
        pytest.skip("its agents are elsewhere")
    name = "scribe" if framework == "crewai" else "clerk"
    trained = trained_in(
        tmp_path, framework, f"tests.plugins.{framework}.authored:{name}"
    )
    with pytest.raises(
        UsageError, match=rf"{name} has its own tools: leave tools=\[\]"
    ):
        getattr(trained, f"to_{framework}")(tools=[])
