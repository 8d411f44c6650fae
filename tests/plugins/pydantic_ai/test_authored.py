"""Rollouts of pydantic-ai's agents as their authors wrote them."""

import json
from pathlib import Path

import pytest

from agentgym.core.config import TrainingConfig
from agentgym.core.trajectory import RolloutStatus
from agentgym.engines.scripted import Reply
from agentgym.rollout.absolute_paths import located
from agentgym.rollout.inspection import probed
from tests.integrations.authored_runs import LIST, OK, run

AUTHORED = "tests.plugins.pydantic_ai.authored"
FORM = {"text": "Two.", "files": 2}

pytestmark = pytest.mark.slow  # each starts workers that import pydantic-ai


def test_a_live_tool_that_asks_for_approval_when_it_runs_has_it(tmp_path: Path) -> None:
    found = run(
        tmp_path,
        "pydantic_ai",
        "wary",
        Reply(calls=[("remove", {"word": "Hi"}), ("my_shout", {"word": "hey"})]),
        Reply(calls=[("final_result", FORM)]),
        **{"agent.allow_tools": ("remove", "my_shout")},
    )
    assert found.reward is not None, found.reason
    called = [(call.name, call.outcome) for call in found.get_tool_calls()]
    assert called[:2] == [("remove", "ok"), ("my_shout", "ok")]
    results = [x["content"] for x in found.model_calls[-1].messages[-2:]]
    assert results == ["removed Hi", "HEY"]


def test_a_form_beside_tools_is_named_as_the_answer() -> None:
    config = TrainingConfig.create(
        scenario="coding", framework="pydantic_ai", agent=f"{AUTHORED}:native"
    )
    report = probed(located(config))
    assert report.problems == []
    assert report.own == {"Answer": "is its answer"}
    assert not any("Answer" in concern for concern in report.concerns)


def test_a_form_is_named_as_the_answer_where_the_trial_does_not_solve_its_task(
    tmp_path: Path,
) -> None:
    tasks = tmp_path / "tasks.jsonl"
    line = {"expect": [{"tool": "list_files"}, {"tool": "list_files"}]}
    each = [{"instruction": f"List folder {n}, twice.", **line} for n in range(14)]
    tasks.write_text("".join(f"{json.dumps(one)}\n" for one in each))
    config = TrainingConfig.create(scenario=str(tasks), agent=f"{AUTHORED}:typed")
    report = probed(located(config))
    assert report.own == {"final_result": "is its answer"}


def test_a_text_where_a_form_is_wanted_counts_as_the_models_failure(
    tmp_path: Path,
) -> None:
    found = run(tmp_path, "pydantic_ai", "typed", LIST, OK, OK)
    assert found.status is RolloutStatus.FAILED
    assert str(found.reason).startswith("wrong form")
    assert found.reward is not None
