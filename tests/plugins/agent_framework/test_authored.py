"""Rollouts of Agent Framework's agents and workflows as their authors wrote them."""

from pathlib import Path

import pytest

from tests.integrations.authored_runs import LIST, OK, run, told_last

pytestmark = pytest.mark.slow  # each starts workers that import Agent Framework


def test_a_question_without_a_user_is_answered(tmp_path: Path) -> None:
    found = run(tmp_path, "agent_framework", "asked", LIST, OK)
    assert found.reason is not None
    assert found.reason.kind == "goal not reached"  # not "interrupt"


def test_a_middleware_of_the_authors_is_part_of_it(tmp_path: Path) -> None:
    found = run(tmp_path, "agent_framework", "reminded", OK)
    assert told_last(found) == "Be quick."
