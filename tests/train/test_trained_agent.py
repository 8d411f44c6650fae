"""An agent's card: what is written is read again, and what is no card is refused."""

from pathlib import Path

import pytest

from agentgym import TrainedAgent
from agentgym.errors import AgentGymError
from agentgym.train.versions import AGENT_FILE
from tests.train.agents import make_agent


@pytest.fixture
def agent(tmp_path: Path) -> TrainedAgent:
    return make_agent(tmp_path / "made", 0.3, 0.9)


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
