"""Looking into a live graph, and giving it another model."""

from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.tools import tool
from langgraph.graph import END, START, MessagesState, StateGraph

from agentgym.errors import UnsupportedError
from agentgym.integrations.langchain.adapter import LangChainAdapter

ADAPTER = LangChainAdapter()


class Model(FakeListChatModel):
    """Says one thing, and takes tools without a word."""

    def bind_tools(self, tools: Any, **kwargs: Any) -> Any:
        return self


@tool
def look(place: str, often: int = 1) -> str:
    """Look somewhere."""
    return place


def agent(says: str = "old") -> Any:
    return create_agent(Model(responses=[says]), [look], system_prompt="You look.")


def answer(graph: Any) -> str:
    return str(graph.invoke({"messages": [("user", "?")]})["messages"][-1].text)


def test_prompt_tools_and_model_of_a_graph_are_found() -> None:
    [role] = ADAPTER.roles(agent())
    assert role.system_prompt == "You look."
    assert role.model.responses == ["old"]
    [spec] = role.tools
    assert (spec.name, spec.description) == ("look", "Look somewhere.")
    assert spec.parameters["required"] == ["place"]
    assert ADAPTER.extract_tools(agent()) == [spec]


def test_another_model_answers_for_a_while_also_after_a_failure() -> None:
    graph = agent()
    with ADAPTER.rebound(graph, Model(responses=["new"])) as way:
        assert "create_agent" in way
        assert answer(graph) == "new"
    with (
        pytest.raises(ZeroDivisionError),
        ADAPTER.rebound(graph, Model(responses=["new"])),
    ):
        _ = 1 / 0
    assert answer(graph) == "old"


def test_a_graph_that_hides_its_model_is_refused() -> None:
    graph = StateGraph(MessagesState)
    graph.add_node("ask", lambda state: {})
    graph.add_edge(START, "ask")
    graph.add_edge("ask", END)
    bare = graph.compile()
    with (
        pytest.raises(UnsupportedError, match=r"Give a factory instead"),
        ADAPTER.rebound(bare, Model(responses=["new"])),
    ):
        pass
    with pytest.raises(UnsupportedError, match="has no tools node"):
        ADAPTER.roles(bare)
    with pytest.raises(UnsupportedError, match="not a compiled graph"):
        ADAPTER.roles(object())
