"""Reviews: precision and recall are paid, and nothing else is."""

import asyncio
from functools import partial
from typing import Any

import pytest

from agentgym.core.task import Split, Task
from agentgym.core.trajectory import Reward, ToolCall
from agentgym.packs.code_review.scenario import CodeReviewScenario, is_worth_a_line
from agentgym.packs.kit.code_rewards import find_problems
from tests.packs.conftest import Calls
from tests.packs.conftest import play as play_calls
from tests.packs.conftest import task_of as find_task

SCENARIO = CodeReviewScenario()
task_of = partial(find_task, SCENARIO)


def play(task: Task, calls: Calls) -> tuple[Reward, list[ToolCall]]:
    trajectory, reward = asyncio.run(play_calls(SCENARIO, task, calls))
    return reward, trajectory.get_tool_calls()


def plan(task: Task) -> list[tuple[str, dict[str, Any]]]:
    return [(tool, dict(arguments)) for tool, arguments in task.goal["plan"]]


@pytest.mark.parametrize("split", list(Split))
def test_lint_shows_every_defect_that_it_is_planted_to_show(split: Split) -> None:
    for task in SCENARIO.tasks(split, 5, 10, levels=(1, 2)):
        found = find_problems(task.initial_state["files"])
        shown = [f for f in found if is_worth_a_line(f) and f.kind != "style"]
        defects = [tuple(defect) for defect in task.goal["defects"]]
        assert [(f.path, f.line, f.kind) for f in shown] == defects


def test_a_comparison_is_about_a_defect_that_no_linter_sees() -> None:
    task = task_of("compare")
    [(path, line, kind)] = task.goal["defects"]
    reward, calls = play(task, [("lint", {"path": path}), *plan(task)])
    assert calls[0].result == "No problems."
    assert reward.success
    shown = calls[1].result.split("\n")[line - 1]
    assert shown.startswith(f"{line}: ")
    assert "return" in shown
    assert kind == "bug"


def every_line(task: Task, kind: str) -> Calls:
    path = task.goal["look"][0]
    lines = task.initial_state["files"][path].count("\n")
    return [
        ("lint", {"path": path}),
        *(
            ("report_finding", {"path": path, "line": line, "kind": kind})
            for line in range(1, lines + 1)
        ),
    ]


@pytest.mark.parametrize("family", ["review_bug", "review_security", "review_clean"])
def test_blanket_reports_lose(family: str) -> None:
    task = task_of(family)
    for kind in ("bug", "security"):
        reward, _ = play(task, every_line(task, kind))
        assert not reward.success
        assert reward.value < 0


def test_one_false_report_is_no_success_and_costs() -> None:
    task = task_of("review_both")
    path = task.goal["look"][0]
    right = {line for _, line, _ in task.goal["defects"]}
    free = next(n for n in range(1, 99) if n not in right)
    false = ("report_finding", {"path": path, "line": free, "kind": "bug"})
    some, _ = play(task, plan(task)[:2])
    most, _ = play(task, [*plan(task), false])
    both, _ = play(task, plan(task))
    assert not most.success
    assert most.parts["false reports"] < 0
    assert 0 < some.value < both.value
    assert most.value < both.value


def test_the_kind_and_the_line_must_be_right() -> None:
    task = task_of("review_bug")
    look, (tool, right) = plan(task)
    for wrong in ({"kind": "security"}, {"line": right["line"] % 5 + 1}):
        reward, _ = play(task, [look, (tool, {**right, **wrong})])
        assert not reward.success
        assert reward.value < 0.3


def test_a_report_needs_a_look_and_repeats_are_refused() -> None:
    task = task_of("review_bug")
    look, report = plan(task)
    reward, calls = play(task, [report, look, report, report])
    assert "look at " in calls[0].result
    assert "reported already" in calls[3].result
    assert not reward.success
    assert reward.parts["rules"] < 0
