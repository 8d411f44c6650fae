"""Looking into live agents and teams, and giving them another model."""

from collections.abc import Callable
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import Team
from autogen_agentchat.tools import AgentTool
from autogen_core.memory import ListMemory
from autogen_core.tools import FunctionTool, StaticWorkbench, ToolOverride

from agentgym.core.tools import Tool
from agentgym.engines.scripted import Reply
from agentgym.errors import ToolError, UnsupportedError
from agentgym.integrations.agent_import import load_agent, make, takes_model
from agentgym.plugins.autogen.adapter import AutoGenAdapter
from agentgym.plugins.autogen.clients import TrainedClient
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


def test_prompt_tools_and_model_of_an_agent_are_found() -> None:
    llm = model()
    [role] = ADAPTER.roles(agent(llm))
    assert (role.name, role.system_prompt, role.model) == ("looker", "You look.", llm)
    [spec] = role.tools
    assert (spec.name, spec.description) == ("look", "Look somewhere.")
    assert spec.parameters["required"] == ["place"]
    assert spec.parameters["properties"]["often"]["default"] == 1


async def test_tools_that_are_known_by_their_schemas_alone_are_found() -> None:
    shown = {"look": ToolOverride(name="see", description="See.")}
    bench = StaticWorkbench([FunctionTool(look, description="Look.")], shown)
    seer = AssistantAgent("seer", model(), workbench=bench)
    [spec] = ADAPTER.extract_tools(seer)
    assert (spec.name, spec.description) == ("see", "See.")
    assert spec.parameters["required"] == ["place"]
    [tool] = ADAPTER.own_tools(seer)
    assert await tool(place="here") == "here"


def test_members_of_a_team_are_roles_and_their_tools_the_teams() -> None:
    team = teams.make_swarm(model(), [look])
    desk, worker = ADAPTER.roles(team)
    assert [tool.name for tool in desk.tools] == ["transfer_to_worker"]
    assert [tool.name for tool in worker.tools] == ["look"]
    found = [tool.name for tool in ADAPTER.extract_tools(team)]
    assert found == ["transfer_to_worker", "look"]
    nested = teams.RoundRobinGroupChat([team])
    assert [role.name for role in ADAPTER.roles(nested)] == ["desk", "worker"]


def test_those_within_tools_and_agents_are_roles_too() -> None:
    assert [role.name for role in ADAPTER.roles(authored("boss"))] == ["boss", "worker"]
    found = [role.name for role in ADAPTER.roles(authored("society"))]
    assert found == ["society", "worker"]
    assert [role.name for role in ADAPTER.roles(authored("author"))] == ["author"]


@pytest.mark.parametrize(
    ("name", "tools"),
    [
        ("clerk", ["list_files", "shout"]),
        ("swarm", ["list_files"]),
        ("boss", ["list_files"]),
        ("far", ["list_files", "far"]),
    ],
)
async def test_its_own_tools_are_those_that_do_something(
    name: str, tools: list[str]
) -> None:
    found = {tool.spec.name: tool for tool in ADAPTER.own_tools(authored(name))}
    assert [*found] == tools
    assert await found["list_files"]() == "the real tool ran"


async def test_its_own_tools_do_what_they_do() -> None:
    tools: dict[str, Tool] = {}
    for function in (look, refuse, leave):
        [made] = ADAPTER.own_tools(FunctionTool(function, description="?"))
        tools[made.spec.name] = made
    assert await tools["look"](place="here") == "here"
    with pytest.raises(ToolError, match="no"):
        await tools["refuse"]()
    with pytest.raises(RuntimeError, match=r"leave called sys.exit\(3\)"):
        await tools["leave"]()


def test_a_tool_that_no_model_can_be_told_of_is_refused() -> None:
    counter = AssistantAgent("counter", model(), tools=[count])
    for look_into in (ADAPTER.own_tools, ADAPTER.roles):
        with pytest.raises(UnsupportedError, match="'count' cannot be described"):
            look_into(counter)


def test_what_is_different_in_training_is_told() -> None:
    [told] = ADAPTER.concerns(authored("asking"))
    assert told == "The scenario's user answers instead of 'person'."
    plain = AssistantAgent("x", model(), memory=[ListMemory()])
    assert ADAPTER.concerns(plain) == []


async def test_a_copy_answers_from_another_model_and_the_given_one_stays() -> None:
    live = agent(model())
    before = dict(vars(live))
    other = ADAPTER.with_model(live, model("new"))
    assert await answer(other) == "new"
    assert type(other) is AssistantAgent
    assert vars(live) == before
    assert await live.model_context.get_messages() == []
    told = [tool.to_openai() for tool in ADAPTER.extract_tools(live)]
    assert [tool.to_openai() for tool in ADAPTER.extract_tools(other)] == told
    assert await answer(live) == "old"


async def test_a_team_that_has_run_has_copies_too() -> None:
    team: Team = teams.make_pair(model("DONE old"), [])
    assert await answer(team) == "DONE old"
    assert await answer(ADAPTER.with_model(team, model("DONE new"))) == "DONE new"
    assert await answer(team) == "DONE old"


@pytest.mark.parametrize("name", ["selected", "nested", "society", "boss", "swarm"])
def test_all_models_of_a_copy_are_the_other(name: str) -> None:
    live, other = authored(name), model("new")
    mine = [role.model for role in ADAPTER.roles(live)]
    copy = ADAPTER.with_model(live, other)
    assert type(copy) is type(live)
    assert all(role.model is other for role in ADAPTER.roles(copy))
    assert [role.model for role in ADAPTER.roles(live)] == mine
    assert other not in mine
    slot = getattr(copy, "_model_client", other)  # who chooses the next speaker
    assert slot is other
    assert [r.system_prompt for r in ADAPTER.roles(copy)] == [
        r.system_prompt for r in ADAPTER.roles(live)
    ]


async def test_tools_of_a_copy_are_those_that_it_had() -> None:
    script = iter([Reply(calls=[("list_files", {})]), Reply("Done.")])
    other = TrainedClient(endpoint(lambda _: next(script)))
    made = ADAPTER.with_model(authored("clerk"), other)
    assert "the real tool ran" in str((await made.run(task="?")).messages)
    inner = AgentTool(agent(model()))
    live = AssistantAgent("boss", model(), tools=[inner])
    ADAPTER.with_model(live, other)
    assert inner._agent._model_client is not other


def test_what_cannot_be_looked_into_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="gave an object, not an agent"):
        ADAPTER.roles(object())
    with pytest.raises(UnsupportedError, match="has no agent with a model"):
        ADAPTER.roles(authored("nobody"))
    with pytest.raises(UnsupportedError, match=r"no tools: neither has \w+.*--tools"):
        ADAPTER.own_tools(authored("planner"))
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


def test_an_agent_is_made_on_a_model_that_nobody_asks() -> None:
    factory = authored("make_on")
    assert takes_model(factory)
    made = make(factory, "make_on", llm=ADAPTER.stand_in(), tools=[])
    assert [tool.spec.name for tool in ADAPTER.own_tools(made)] == ["list_files"]
