"""A trial shows an agent's roles, prompts, tools and models, and what answers calls."""

import pytest

from agentgym.cli.inspect import tried

PASSES = "runs: it passes control on"
ANSWER = "is its answer"

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.mark.parametrize(
    ("agent", "roles", "acting", "own"),
    [
        ("agent_framework.authored:boss", "boss clerk", "list_files shout", PASSES),
        ("agent_framework.authored:handed", "desk expert", "list_files", PASSES),
        ("autogen.authored:swarm", "desk worker", "list_files", PASSES),
        ("autogen.authored:boss", "", "list_files", PASSES),
        ("crewai.authored:pair", "", "shout_out", ""),
        ("llamaindex.authored:desk", "front back", "list_files", PASSES),
        ("llamaindex.authored:boss", "boss clerk", "list_files", PASSES),
        ("openai_agents.authored:noted", "noted clerk", "list_files shout", PASSES),
        ("openai_agents.authored:boss", "boss clerk", "list_files shout", PASSES),
        ("pydantic_ai.authored:typed", "", "list_files", ANSWER),
        ("smolagents.authored:boss", "boss clerk", "list_files shout", PASSES),
        ("strands.authored:boss", "boss clerk", "list_files shout", PASSES),
    ],
)
def test_a_trial_shows_who_asks_for_which_tools(
    agent: str, roles: str, acting: str, own: str
) -> None:
    report = tried(f"tests.plugins.{agent}")
    assert report.problems == []
    assert {role.name for role in report.roles} >= set(roles.split())
    assert set(report.bound) >= set(acting.split())
    assert not own or own in report.own.values()
    assert report.not_called == []


@pytest.mark.parametrize(
    ("agent", "note"),
    [
        ("agent_framework.authored:searching", "web_search is left out"),
        ("openai_agents.authored:searching", "FileSearchTool is left out"),
        ("crewai.authored:asking", "Planning is off"),
    ],
)
def test_what_is_different_in_training_is_told(agent: str, note: str) -> None:
    assert any(note in each for each in tried(f"tests.plugins.{agent}").concerns)
