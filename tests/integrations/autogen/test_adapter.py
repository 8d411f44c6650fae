"""Looking into live agents and teams, and giving them another model."""

from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import Team
from autogen_core.tools import FunctionTool, StaticWorkbench, ToolOverride

from agentgym.engines.scripted import Reply, ScriptedPolicy
from agentgym.errors import UnsupportedError
from agentgym.integrations.autogen.adapter import AutoGenAdapter
from agentgym.integrations.autogen.model import PolicyClient
from tests.integrations.autogen import teams

ADAPTER = AutoGenAdapter()


def look(place: str, often: int = 1) -> str:
    """Look somewhere."""
    return place


def model(says: str = "old") -> PolicyClient:
    return PolicyClient(ScriptedPolicy(lambda _: Reply(says)))


def agent(llm: PolicyClient) -> AssistantAgent:
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
    [spec] = ADAPTER.extract_tools(AssistantAgent("seer", model(), workbench=bench))
    assert (spec.name, spec.description) == ("see", "See.")
    assert spec.parameters["required"] == ["place"]
    assert spec.validate({"place": "here"})["often"] == 1


def test_members_of_a_team_are_roles_and_their_tools_the_teams() -> None:
    team = teams.make_swarm(model(), [look])
    desk, worker = ADAPTER.roles(team)
    assert [tool.name for tool in desk.tools] == ["transfer_to_worker"]
    assert [tool.name for tool in worker.tools] == ["look"]
    found = [tool.name for tool in ADAPTER.extract_tools(team)]
    assert found == ["transfer_to_worker", "look"]
    nested = teams.RoundRobinGroupChat([team])
    assert [role.name for role in ADAPTER.roles(nested)] == ["desk", "worker"]


async def test_another_model_answers_for_a_while_also_after_a_failure() -> None:
    live = agent(model())
    with ADAPTER.rebound(live, model("new")) as way:
        assert "_model_client" in way
        assert await answer(live) == "new"
    assert await answer(live) == "old"
    with pytest.raises(ZeroDivisionError), ADAPTER.rebound(live, model("new")):
        _ = 1 / 0
    assert await answer(live) == "old"


async def test_a_team_that_has_run_is_rebound_too() -> None:
    team: Team = teams.make_pair(model("DONE old"), [])
    assert await answer(team) == "DONE old"
    with ADAPTER.rebound(team, model("DONE new")):
        assert await answer(team) == "DONE new"
    assert await answer(team) == "DONE old"


def test_what_cannot_be_looked_into_is_refused() -> None:
    with pytest.raises(UnsupportedError, match="gave a object, not an agent"):
        ADAPTER.roles(object())
    selected = teams.make_selected(model(), [look])
    with (
        pytest.raises(UnsupportedError, match="asks a model who speaks next"),
        ADAPTER.rebound(selected, model("new")),
    ):
        pass
    assert [role.name for role in ADAPTER.roles(selected)] == ["planner", "worker"]
