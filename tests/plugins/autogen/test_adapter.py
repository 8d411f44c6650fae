"""Looking into live agents and teams, and giving them another model."""

from collections.abc import Callable
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import Team
from autogen_core.tools import FunctionTool, StaticWorkbench, ToolOverride

from agentgym.core.tools import Tool
from agentgym.engines.scripted import Reply
from agentgym.errors import ToolError, UnsupportedError
from agentgym.integrations.agent_import import load_agent, make, takes_model
from agentgym.plugins.autogen import AutoGenAdapter
from agentgym.plugins.autogen.agents import TrainedClient
from tests.integrations.exported import endpoint
from tests.plugins.autogen import teams

ADAPTER = AutoGenAdapter()


def authored(name: str) -> Any:
    return load_agent(f"tests.plugins.autogen.authored:{name}")


def look(place: str, often: int = 1) -> str:
    """Look somewhere."""
    return place


def refuse() -> str:
    """Refuse."""
    raise ValueError("no")


async def leave() -> str:
    """Leave."""
    raise SystemExit(3)


def count(thing: Callable[[], int]) -> int:
    """Count."""
    return thing()


def model(says: str = "old") -> TrainedClient:
    return TrainedClient(endpoint(lambda _: Reply(says)))


def agent(llm: TrainedClient) -> AssistantAgent:
    return AssistantAgent("looker", llm, tools=[look], system_message="You look.")


async def answer(agent: Any) -> str:
    return str((await agent.run(task="?")).messages[-1].content)


async def test_tools_that_are_known_by_their_schemas_alone_are_found() -> None:
    shown = {"look": ToolOverride(name="see", description="See.")}
    bench = StaticWorkbench([FunctionTool(look, description="Look.")], shown)
    [tool] = ADAPTER.tools_of(bench)
    assert (tool.spec.name, tool.spec.description) == ("see", "See.")
    assert tool.spec.parameters["required"] == ["place"]
    assert await tool(place="here") == "here"


async def test_its_own_tools_do_what_they_do() -> None:
    tools: dict[str, Tool] = {}
    for function in (look, refuse, leave):
        [made] = ADAPTER.tools_of(FunctionTool(function, description="?"))
        tools[made.spec.name] = made
    assert await tools["look"](place="here") == "here"
    with pytest.raises(ToolError, match="no"):
        await tools["refuse"]()
    with pytest.raises(RuntimeError, match=r"leave called sys.exit\(3\)"):
        await tools["leave"]()


async def test_a_copy_answers_from_another_model_and_the_given_one_stays() -> None:
    live = agent(model())
    before = dict(vars(live))
    other = ADAPTER.with_model(live, model("new"))
    assert await answer(other) == "new"
    assert type(other) is AssistantAgent
    assert vars(live) == before
    assert await live.model_context.get_messages() == []
    assert await answer(live) == "old"


async def test_a_team_that_has_run_has_copies_too() -> None:
    team: Team = teams.make_pair(model("DONE old"), [])
    assert await answer(team) == "DONE old"
    assert await answer(ADAPTER.with_model(team, model("DONE new"))) == "DONE new"
    assert await answer(team) == "DONE old"


@pytest.mark.parametrize("name", ["selected", "nested", "society", "boss", "swarm"])
def test_all_models_of_a_copy_are_the_other(name: str) -> None:
    live, other = authored(name), model("new")
    mine = ADAPTER.framework.members(live)
    copy = ADAPTER.with_model(live, other)
    assert type(copy) is type(live)
    made = ADAPTER.framework.members(copy)
    assert made.keys() == mine.keys()
    assert all(client is other for client in made.values())
    assert ADAPTER.framework.members(live) == mine
    assert other not in mine.values()
    slot = getattr(copy, "_model_client", other)  # who chooses the next speaker
    assert slot is other


def test_what_cannot_be_looked_into_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="gave an object, not an agent"):
        ADAPTER.require_agent(object(), "it")
    with pytest.raises(UnsupportedError, match="cannot take tools from"):
        ADAPTER.tools_of(authored("planner"))
    with pytest.raises(UnsupportedError, match="A str is not a model client"):
        ADAPTER.with_model(authored("clerk"), "gpt-4o")
    with pytest.raises(UnsupportedError, match="model client of .* was not found"):
        ADAPTER.with_model(authored("author"), model())
    odd: Any = {"x": Refusing()}
    stuck = AssistantAgent("stuck", model(), metadata=odd)
    with pytest.raises(UnsupportedError, match="cannot be copied.*one of a kind"):
        ADAPTER.with_model(stuck, model())


class Refusing:
    def __reduce_ex__(self, protocol: Any) -> Any:
        return "one of a kind"


class Makers:
    """Factories of one agent: they take a model's name, or nothing."""

    def __call__(self) -> Any:
        return authored("clerk")

    @staticmethod
    def plain(model: str = "gpt-4o", temperature: float = 0.0) -> Any:
        return model

    @staticmethod
    def bare(model="gpt-4o", **more):  # type: ignore[no-untyped-def]
        return model


def test_a_factory_that_takes_a_models_name_is_not_given_a_model() -> None:
    for factory in (Makers.plain, Makers.bare):
        assert not takes_model(factory)
        assert make(factory, "it", llm=ADAPTER.stand_in(), tools=[]) == "gpt-4o"
    made = make(Makers(), "it", llm=ADAPTER.stand_in(), tools=[])
    assert made is authored("clerk")
