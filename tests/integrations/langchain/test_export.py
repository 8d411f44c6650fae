"""An exported agent makes as many model calls as in training, and no more."""

from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import tool
from langgraph.errors import GraphRecursionError

from agentgym.core.policy import ChatRequest
from agentgym.engines.scripted import Reply
from tests.integrations.exported import scripted, trained_in

MAX_TURNS = 4
TEAM = "tests.integrations.langchain.teams:make_graph"


@tool
def look() -> str:
    """Look."""
    return "nothing"


def exported(
    folder: Path, monkeypatch: pytest.MonkeyPatch, agent: str | None, needed: int
) -> Any:
    def respond(request: ChatRequest) -> Reply:
        """Call a tool in all calls but the last that is needed."""
        said = sum(message["role"] == "assistant" for message in request.messages)
        is_busy = said + 1 < needed
        return Reply(calls=[("look", {})]) if is_busy else Reply("Done.")

    scripted(monkeypatch, respond)
    return trained_in(folder, "langchain", agent).to_langchain(tools=[look])


@pytest.mark.parametrize("agent", [None, "tests.rollout.chatty:make_hooked_agent"])
async def test_turns_are_model_calls(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, agent: str | None
) -> None:
    graph = exported(tmp_path, monkeypatch, agent, MAX_TURNS)
    asked: Any = {"messages": [("user", "Look.")]}
    for answer in (graph.invoke(asked), await graph.ainvoke(asked)):
        assert answer["messages"][-1].text == "Done."


async def test_one_model_call_too_many_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph = exported(tmp_path, monkeypatch, None, MAX_TURNS + 1)
    asked: Any = {"messages": [("user", "Look.")]}
    with pytest.raises(GraphRecursionError, match="4 times"):
        graph.invoke(asked)
    with pytest.raises(GraphRecursionError, match="4 times"):
        await graph.ainvoke(asked)


async def test_each_call_of_an_exported_team_says_which_role_makes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A weights' adapter is chosen by it: streamed, from a nested agent, and sync."""

    def respond(request: ChatRequest) -> Reply:
        is_worker = request.tools and request.messages[-1]["role"] != "tool"
        return Reply(calls=[("list_files", {})]) if is_worker else Reply("DONE")

    asked = scripted(monkeypatch, respond)
    graph = trained_in(tmp_path, "langchain", TEAM).to_langchain()
    await graph.ainvoke({"messages": [("user", "What is there?")]})
    assert [request.agent for request in asked] == [
        *("planner", "worker", "worker", "critic")
    ]
