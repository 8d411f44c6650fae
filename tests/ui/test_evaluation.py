"""What people see of evaluations: complete, and readable in narrow terminals."""

import pytest

from agentgym.evaluate.compare import compare
from agentgym.ui.evaluation import comparison_of_two, evaluation_view
from agentgym.ui.report import render_comparison, render_evaluation
from tests.ui import made_up
from tests.ui.test_tables import shown


@pytest.mark.parametrize("width", [60, 80, 120])
def test_an_evaluation_fits(width: int) -> None:
    text = shown(evaluation_view(made_up.evaluation(0.5)), width)
    assert max(map(len, text.splitlines())) <= width
    assert "…" not in text
    for part in ("50 %", "do-nothing", "unneeded", "(no call)", "lint"):
        assert part in text


@pytest.mark.parametrize("width", [60, 80, 120])
def test_a_comparison_fits(width: int) -> None:
    before, after = made_up.evaluation(0.4), made_up.evaluation(0.9)
    found = compare(before.metrics, after.metrics)
    text = shown(comparison_of_two(before, after, found), width)
    assert "…" not in text
    row = next(line for line in text.splitlines() if "pass^1 " in line)
    assert "+48" in row
    assert ("[+" in row) == (width > 60)
    assert "pass^1: B is better (p = 0.0005" in text


def test_reports() -> None:
    before, after = made_up.evaluation(0.4), made_up.evaluation(0.9)
    report = render_evaluation(before)
    assert "12 tasks of the test split, seed 0, 48 rollouts." in report
    assert "| read_file | 40 | 0 | 8 |" in report
    found = compare(before.metrics, after.metrics)
    both = render_comparison(before, after, found)
    assert "| pass^1 |" in both
    assert "B is better" in both
