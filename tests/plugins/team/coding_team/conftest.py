"""A sandbox that all tests share, and a team in it."""

from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import closing
from typing import Any

import pytest

from agentgym.plugins.team.coding_team.environment import TeamEnvironment
from agentgym.plugins.team.coding_team.scenario import CodingTeamScenario
from agentgym.sandbox import Sandbox

Run = Callable[..., Awaitable[dict[str, Any]]]


@pytest.fixture(scope="session")
def scenario() -> Iterator[CodingTeamScenario]:
    with closing(CodingTeamScenario()) as made:
        yield made


@pytest.fixture(scope="session")
def sandbox(scenario: CodingTeamScenario) -> Sandbox:
    return scenario.sandbox


class Team:
    """A graph with its project, to run and to look into."""

    def __init__(
        self, sandbox: Sandbox, files: Mapping[str, str], cast: Any, **options: Any
    ) -> None:
        from langgraph.checkpoint.memory import InMemorySaver

        from agentgym.integrations.langchain import LangChainAdapter
        from agentgym.plugins.team.coding_team.graph import build_team

        rounds = options.pop("max_rounds", 3)
        self.project = TeamEnvironment(files, sandbox, max_rounds=rounds)
        self.graph = build_team(
            cast,
            [LangChainAdapter().framework.bound(tool) for tool in self.project.tools()],
            checkpointer=InMemorySaver(),
            **options,
        )
        self.config: Any = {"configurable": {"thread_id": "1"}}

    async def ask(self, text: str) -> dict[str, Any]:
        given = {"messages": [("user", text)]}
        state: dict[str, Any] = await self.graph.ainvoke(given, self.config)
        return state

    async def answer(self, value: Any) -> dict[str, Any]:
        from langgraph.types import Command

        state: dict[str, Any] = await self.graph.ainvoke(
            Command(resume=value), self.config
        )
        return state


@pytest.fixture
def team(sandbox: Sandbox) -> Callable[..., Team]:
    def make(files: Mapping[str, str], cast: Any, **options: Any) -> Team:
        return Team(sandbox, files, cast, **options)

    return make
