"""Looking into agents, tasks and crews, and giving them another model."""

from typing import Any

import pytest
from crewai import BaseLLM, Crew, Task
from crewai.tools import BaseTool, tool

from agentgym.errors import MissingExtraError, UnsupportedError
from agentgym.integrations import registry
from agentgym.integrations.crewai.adapter import CrewAIAdapter
from tests.integrations.crewai.teams import make_agent, make_crew, make_task

ADAPTER = CrewAIAdapter()

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning:crewai")


class Says(BaseLLM):
    """Says one thing."""

    def call(self, *args: Any, **kwargs: Any) -> str:
        return self.model


@tool("Look up")
def look_up(place: str, often: int = 1) -> str:
    """Look somewhere."""
    return place


def answer(found: Any) -> str:
    if isinstance(found, Crew):
        return str(found.kickoff({"task": "?"}).raw)
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
    assert ADAPTER.extract_tools(agent) == [spec]


def test_all_agents_of_a_crew_and_a_task_are_found() -> None:
    crew = make_crew(Says(model="old"), [])
    crew.tasks[1].tools = [look_up]
    assert [role.name for role in ADAPTER.roles(crew)] == ["Head\nScribe\n", "Critiqué"]
    assert [spec.name for spec in ADAPTER.roles(crew)[1].tools] == ["look_up"]
    assert [spec.name for spec in ADAPTER.extract_tools(crew)] == ["look_up"]
    assert [role.name for role in ADAPTER.roles(make_task(Says(model="old"), []))] == [
        "Scribe"
    ]


@pytest.mark.parametrize("make", [make_agent, make_crew])
def test_another_model_answers_for_a_while_also_after_a_failure(make: Any) -> None:
    found = make(Says(model="old"), [])
    assert answer(found) == "old"
    with ADAPTER.rebound(found, Says(model="new")) as way:
        assert "llm" in way
        assert answer(found) == "new"
    with (
        pytest.raises(ZeroDivisionError),
        ADAPTER.rebound(found, Says(model="new")),
    ):
        _ = 1 / 0
    assert answer(found) == "old"


def test_what_is_no_agent_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="not an Agent, Task or Crew"):
        ADAPTER.roles(object())
    lonely = Task(description="?", expected_output="?")
    with pytest.raises(UnsupportedError, match=r"Task without an agent.*Task\(agent="):
        ADAPTER.roles(lonely)


def test_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "find_spec", lambda _: None)
    with pytest.raises(MissingExtraError, match=r"agentgym\[crewai\]"):
        ADAPTER.check()
    assert issubclass(type(look_up), BaseTool)
