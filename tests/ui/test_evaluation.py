"""What people see of evaluations: complete, and readable in narrow terminals."""

import pytest

from agentgym.evaluate.call_classes import ConfusionMatrix
from agentgym.evaluate.compare import compare
from agentgym.evaluate.metrics import TaskResult
from agentgym.ui.evaluation import comparison_of_two, evaluation_view
from agentgym.ui.reports import render_comparison, render_evaluation
from tests.ui import made_up
from tests.ui.test_tables import shown


@pytest.mark.parametrize("width", [60, 120])
def test_an_evaluation_fits(width: int) -> None:
    text = shown(evaluation_view(made_up.evaluation(0.5)), width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    for part in ("50 %", "do-nothing", "unneeded", "(no call)", "lint"):
        assert part in text


@pytest.mark.parametrize("width", [60, 120])
def test_a_comparison_fits(width: int) -> None:
    before, after = made_up.evaluation(0.4), made_up.evaluation(0.9)
    found = compare(before.metrics, after.metrics)
    text = shown(comparison_of_two(before, after, found), width)
    assert "…" not in text
    row = next(line for line in text.splitlines() if "pass^1 " in line)
    assert "+48" in row
    assert ("[+" in row) == (width > 60)
    assert "pass^1: B is better (p = 0.0005" in text


def test_of_very_many_tools_those_with_wrong_calls_are_shown() -> None:
    tools = [f"tool_{number}" for number in range(90)]
    counts = {tool: {tool: 3} for tool in tools}
    counts["tool_7"] = {"tool_8": 2, "tool_7": 1}
    counts |= {f"tool_{n}": {"(no call)": 1} for n in range(40, 70)}
    found = made_up.evaluation(0.5)
    found = found.model_copy(
        update={"confusion": ConfusionMatrix(tools=tools, counts=counts)}
    )
    text = shown(evaluation_view(found), 80)
    assert "tool_7 " in text
    assert "tool_9 " not in text
    left_out = "Left out: 66 of 90 tools, with 7 wrong calls together."
    assert left_out in text
    assert left_out in render_evaluation(found)


def test_kinds_of_tasks_are_shown_beside_each_other() -> None:
    found = made_up.evaluation(0.5)
    rows = [
        TaskResult(task_id=f"{family}-{n}", family=family, attempts=1, successes=done)
        for family, done in (("simple_java", 0), ("irrelevance", 1))
        for n in range(3)
    ]
    rows = [r.model_copy(update={"sums": {"pass_1": (r.successes, 1)}}) for r in rows]
    found = found.model_copy(
        update={"metrics": found.metrics.model_copy(update={"by_task": tuple(rows)})}
    )
    text = shown(evaluation_view(found), 80)
    assert text.index("simple_java") < text.index("irrelevance")
    assert "3 tasks" in text
    assert "| simple_java | 0 %" in render_evaluation(found)


def test_reports() -> None:
    before, after = made_up.evaluation(0.4), made_up.evaluation(0.9)
    report = render_evaluation(before)
    assert "12 tasks of the test split, seed 0, 48 rollouts." in report
    assert "| read_file | 40 | 0 | 8 |" in report
    found = compare(before.metrics, after.metrics)
    both = render_comparison(before, after, found)
    assert "| pass^1 |" in both
    assert "B is better" in both
