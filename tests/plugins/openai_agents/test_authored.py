"""Rollouts of agents of the OpenAI Agents SDK as their authors wrote them."""

from pathlib import Path

import pytest

from agentgym.core.tools import ToolOutcome
from agentgym.core.trajectory import RolloutStatus
from tests.integrations.authored_runs import LIST, OK, run

pytestmark = pytest.mark.slow  # each starts workers that import the Agents SDK


def test_a_call_that_a_guardrail_stops_does_not_count_as_made(tmp_path: Path) -> None:
    found = run(tmp_path, "openai_agents", "barred", LIST)
    assert found.reward is not None, found.reason
    [call] = found.get_tool_calls()
    assert call.outcome is ToolOutcome.RAISED


def test_a_text_where_a_form_is_wanted_counts_as_the_models_failure(
    tmp_path: Path,
) -> None:
    found = run(tmp_path, "openai_agents", "typed", LIST, OK, OK)
    assert found.status is RolloutStatus.FAILED
    assert str(found.reason).startswith("wrong form")
    assert found.reward is not None
