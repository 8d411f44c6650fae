"""An agent's card: what is written is read again, and what is no card is refused."""

from pathlib import Path

import pytest

from agentgym import TrainedAgent
from agentgym.core.agent import AgentSpec
from agentgym.errors import AgentGymError
from agentgym.train.trained_agent import AGENT_FILE, Provenance
from tests.ui import made_up


@pytest.fixture
def agent(tmp_path: Path) -> TrainedAgent:
    spec = AgentSpec(
        scenario="coding",
        framework="native",
        system_prompt="You repair code.",
        tools=[],
        max_turns=10,
        max_tokens=160,
        temperature=0.0,
    )
    provenance = Provenance(
        base_model="nano", config={}, steps=1, episodes=8, created="2026-11-23"
    )
    made = TrainedAgent(
        path=tmp_path,
        spec=spec,
        provenance=provenance,
        baseline=made_up.metrics(0.3),
        metrics=made_up.metrics(0.9),
    )
    made.write_card()
    return made


def test_a_card_is_read_as_it_was_written(agent: TrainedAgent) -> None:
    assert TrainedAgent.load(agent.path) == agent


def test_a_folder_that_was_moved_is_where_it_is(agent: TrainedAgent) -> None:
    moved = agent.path.rename(agent.path.with_name("moved"))

    assert TrainedAgent.load(moved).path == moved


@pytest.mark.parametrize("card", ["{", "[]", '{"spec": {}}'])
def test_a_card_that_is_none_says_what_to_do(agent: TrainedAgent, card: str) -> None:
    (agent.path / AGENT_FILE).write_text(card)

    with pytest.raises(AgentGymError, match="(?s)cannot be read .* Train or save it"):
        TrainedAgent.load(agent.path)
