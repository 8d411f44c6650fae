"""Looking into agents, tasks and crews, and giving them another model."""

import sys
from typing import Any

import pytest
from crewai import BaseLLM, Crew, Task
from crewai.mcp import MCPServerStdio
from crewai.tools import tool

from agentgym.errors import ToolError, UnsupportedError, UsageError
from agentgym.integrations.agent_import import build, load_agent
from agentgym.plugins.crewai import CrewAIAdapter
from agentgym.plugins.crewai.agents import in_training, members
from tests.plugins.crewai.teams import make_agent, make_crew, make_hierarchy, make_task

ADAPTER = CrewAIAdapter()

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:crewai")


class Says(BaseLLM):
    """Says one thing."""

    def call(self, *args: Any, **kwargs: Any) -> str:
        return self.model


@pytest.fixture(scope="module")
def authored() -> Any:
    load_agent("tests.plugins.crewai.authored:scribe")
    return sys.modules["tests.plugins.crewai.authored"]


@tool("Look up")
def look_up(place: str, often: int = 1) -> str:
    """Look somewhere."""
    return place


def answer(found: Any) -> str:
    if isinstance(found, Crew):
        return str(found.kickoff({"task": "?"}).raw)
    if isinstance(found, Task):
        return str(found.execute_sync().raw)
    return str(found.kickoff("?").raw)


@pytest.mark.parametrize("make", [make_agent, make_task, make_crew, make_hierarchy])
def test_a_copy_answers_from_another_model_and_the_given_one_stays(make: Any) -> None:
    old, new = Says(model="old"), Says(model="new")
    found = make(old, [look_up])
    before = {name: id(value) for name, value in vars(found).items()}
    made = ADAPTER.with_model(found, new)
    assert type(made) is type(found)
    for one, copy in zip(members(found, "it"), members(made, "it"), strict=True):
        assert (copy.role, copy.goal) == (one.role, one.goal)
        assert [each.name for each in copy.tools] == [each.name for each in one.tools]
        assert (one.llm.model, copy.llm.model) == ("old", "new")
    assert answer(made) == "new"
    assert {name: id(value) for name, value in vars(found).items()} == before
    assert answer(found) == "old"


@pytest.mark.slow
def test_copies_keep_whose_task_is_whose(authored: Any) -> None:
    made = ADAPTER.with_model(authored.twins, Says(model="new"))
    assert [tool.name for tool in made.tasks[0].agent.tools] == ["note"]
    assert made.tasks[0].agent is made.agents[1]
    pair = ADAPTER.with_model(authored.pair, Says(model="new"))
    assert pair.tasks[1].context == [pair.tasks[0]]
    assert pair.tasks[1].context[0] is pair.tasks[0]


@pytest.mark.slow
async def test_its_own_tools_do_what_they_do(authored: Any) -> None:
    pair = authored.pair
    held = [x for part in (*pair.agents, *pair.tasks) for x in part.tools or ()]
    tools = {tool.spec.name: tool for each in held for tool in ADAPTER.tools_of(each)}
    assert {"shout_out", "later", "once"} <= tools.keys()
    assert await tools["shout_out"](word="hey") == "HEY"
    assert await tools["later"](word="a") == "a later"
    assert await tools["once"]() == "once and no more"
    with pytest.raises(ToolError, match="usage limit of 1"):
        await tools["once"]()
    [leave] = ADAPTER.tools_of(authored.quit_all)
    with pytest.raises(RuntimeError, match=r"quit_all called sys.exit\(3\)"):
        await leave()


def test_a_tool_that_no_model_can_be_told_of_is_refused(authored: Any) -> None:
    [tool] = authored.counting.tools
    with pytest.raises(UnsupportedError, match="'count' cannot be described"):
        ADAPTER.tools_of(tool)


def test_an_mcp_server_that_does_not_start_is_named() -> None:
    server = MCPServerStdio(command="no-such-command", args=[])
    agent = make_agent(Says(model="old"), []).model_copy(update={"mcps": [server]})
    with pytest.raises(UnsupportedError, match="MCP servers of Scribe cannot be asked"):
        in_training(agent, Says(model="new"))


def test_what_is_no_agent_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="not an Agent, Task, Crew or Flow"):
        ADAPTER.require_agent(object(), "it")
    lonely = Task(description="?", expected_output="?")
    with pytest.raises(UnsupportedError, match=r"Task without an agent.*Task\(agent="):
        ADAPTER.require_agent(lonely, "it")
    agent = make_agent(Says(model="old"), [])
    with pytest.raises(UnsupportedError, match="A str is not an LLM of CrewAI's"):
        ADAPTER.with_model(agent, "openai/gpt-4o")
    with pytest.raises(UnsupportedError, match="cannot take tools from"):
        ADAPTER.tools_of(agent)


def of_one(topic: str, tone: str = "kind") -> Crew:
    return make_crew(Says(model=f"{topic}, {tone}"), [])


def of_two(topic: str, place: str) -> Crew:
    return make_crew(Says(model=f"{topic} in {place}"), [])


def of_words(topic: str) -> str:
    return topic


def test_texts_that_a_factory_requires_are_places_for_the_tasks_input() -> None:
    for name, said in (("of_one", "{task}, kind"), ("of_two", "{topic} in {place}")):
        adapter, crew = build(f"{__name__}:{name}")
        assert adapter.name == "crewai"
        assert [agent.llm.model for agent in crew.agents] == [said] * len(crew.agents)
    with pytest.raises(UsageError, match="requires 'topic', which training does not"):
        build(f"{__name__}:of_words")
