"""Looking into agents, tasks and crews, and giving them another model."""

import sys
from typing import Any

import pytest
from crewai import BaseLLM, Crew, Task
from crewai.mcp import MCPServerStdio
from crewai.tools import BaseTool, tool

from agentgym.errors import MissingExtraError, ToolError, UnsupportedError
from agentgym.integrations import registry
from agentgym.integrations.agent_import import load_agent
from agentgym.plugins.crewai.adapter import CrewAIAdapter
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


def test_role_prompt_tools_and_model_of_an_agent_are_found() -> None:
    model = Says(model="old")
    agent = make_agent(model, [look_up])
    [role] = ADAPTER.roles(agent)
    assert (role.name, role.model) == ("Scribe", model)
    assert role.system_prompt == "You are Scribe. Slow.\nYour personal goal is: Note."
    [spec] = role.tools
    assert (spec.name, spec.description) == ("look_up", "Look somewhere.")
    assert spec.parameters["required"] == ["place"]
    assert [each.name for each in ADAPTER.extract_tools(agent)] == ["look_up"]


def test_all_agents_of_a_crew_and_a_task_are_found() -> None:
    crew = make_crew(Says(model="old"), [])
    crew.tasks[1].tools = [look_up]
    assert [role.name for role in ADAPTER.roles(crew)] == ["Head Scribe", "Critiqué"]
    assert [spec.name for spec in ADAPTER.roles(crew)[1].tools] == ["look_up"]
    assert [spec.name for spec in ADAPTER.extract_tools(crew)] == ["look_up"]
    assert [role.name for role in ADAPTER.roles(make_task(Says(model="old"), []))] == [
        "Scribe"
    ]


@pytest.mark.parametrize("make", [make_agent, make_task, make_crew, make_hierarchy])
def test_a_copy_answers_from_another_model_and_the_given_one_stays(make: Any) -> None:
    old, new = Says(model="old"), Says(model="new")
    found = make(old, [look_up])
    before = {name: id(value) for name, value in vars(found).items()}
    made = ADAPTER.with_model(found, new)
    assert type(made) is type(found)
    for role, copy in zip(ADAPTER.roles(found), ADAPTER.roles(made), strict=True):
        assert (copy.name, copy.system_prompt) == (role.name, role.system_prompt)
        told = [tool.to_openai() for tool in role.tools]
        assert [tool.to_openai() for tool in copy.tools] == told
    assert answer(made) == "new"
    assert {name: id(value) for name, value in vars(found).items()} == before
    assert {role.model.model for role in ADAPTER.roles(found)} == {"old"}
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
    tools = {tool.spec.name: tool for tool in ADAPTER.own_tools(authored.pair)}
    assert [*tools] == ["note", "shout_out", "later", "once"]
    assert await tools["shout_out"](word="hey") == "HEY"
    assert await tools["later"](word="a") == "a later"
    assert await tools["once"]() == "once and no more"
    with pytest.raises(ToolError, match="usage limit of 1"):
        await tools["once"]()
    [leave] = ADAPTER.own_tools(authored.quit_all)
    with pytest.raises(RuntimeError, match=r"quit_all called sys.exit\(3\)"):
        await leave()


def test_a_tool_that_no_model_can_be_told_of_is_refused(authored: Any) -> None:
    for look_into in (ADAPTER.own_tools, ADAPTER.roles):
        with pytest.raises(UnsupportedError, match="'count' cannot be described"):
            look_into(authored.counting)


def test_what_is_different_in_training_is_told(authored: Any) -> None:
    assert ADAPTER.concerns(authored.pair) == []
    planning, waiting = ADAPTER.concerns(authored.asking)
    assert planning.startswith("Planning is off")
    assert "go on without it" in waiting
    agent = make_agent(Says(model="old"), []).model_copy(
        update={"memory": object(), "apps": ["gmail"]}
    )
    remembering, reaching = ADAPTER.concerns(agent)
    assert remembering.startswith("Memory is off")
    assert reaching == "Apps of Scribe are really reached."


def test_an_mcp_server_that_does_not_start_is_named() -> None:
    server = MCPServerStdio(command="no-such-command", args=[])
    agent = make_agent(Says(model="old"), []).model_copy(update={"mcps": [server]})
    with pytest.raises(UnsupportedError, match="MCP servers of Scribe cannot be asked"):
        ADAPTER.own_tools(agent)


def test_what_is_no_agent_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="not an Agent, Task, Crew or Flow"):
        ADAPTER.roles(object())
    lonely = Task(description="?", expected_output="?")
    with pytest.raises(UnsupportedError, match=r"Task without an agent.*Task\(agent="):
        ADAPTER.roles(lonely)
    agent = make_agent(Says(model="old"), [])
    with pytest.raises(UnsupportedError, match="A str is not an LLM of CrewAI's"):
        ADAPTER.with_model(agent, "openai/gpt-4o")
    with pytest.raises(UnsupportedError, match=r"no tools: neither has \w+.*--tools"):
        ADAPTER.own_tools(agent)


def test_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match=r"pip install .*\[crewai\]"):
        ADAPTER.check()
    assert issubclass(type(look_up), BaseTool)
