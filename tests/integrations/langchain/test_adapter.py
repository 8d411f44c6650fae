"""Looking into a live graph, and giving it another model."""

from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models.fake_chat_models import FakeListChatModel
from langchain_core.tools import StructuredTool, tool
from pydantic import BaseModel, ConfigDict, Field

from agentgym.core.tools import same_arguments
from agentgym.integrations.langchain import LangChainAdapter
from agentgym.integrations.langchain.graphs import spec_of

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


def test_a_copy_answers_from_another_model_and_the_agent_as_before() -> None:
    graph = agent()
    other = ADAPTER.with_model(graph, Model(responses=["new"]))
    assert type(other) is type(graph)
    assert answer(other) == "new"
    assert answer(graph) == "old"


class Mail(BaseModel):
    """The arguments of a mail, with a name that is a keyword."""

    model_config = ConfigDict(populate_by_name=True)
    sender: str = Field(alias="from")
    to: str


def test_an_argument_may_be_called_by_its_alias_as_in_langchain() -> None:
    def send(**mail: str) -> str:
        return "sent"

    made = StructuredTool.from_function(
        send, name="send", description="Send a mail.", args_schema=Mail
    )
    spec = spec_of(made)
    assert list(spec.parameters["properties"]) == ["sender", "to"]
    by_alias, by_name = {"from": "Ada", "to": "Bob"}, {"sender": "Ada", "to": "Bob"}
    assert spec.validate(by_alias) == by_name
    assert same_arguments(spec, by_alias, by_name)
    assert not spec.accepts({"form": "Ada", "to": "Bob"})
