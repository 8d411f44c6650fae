"""Results print their verdict and their table, also as HTML for a notebook."""

import re

import pytest

from agentgym.core.notebook import Shown
from agentgym.evaluate.compare import compare
from agentgym.evaluate.rows import rows
from tests.ui import made_up

BEFORE, AFTER = made_up.evaluation(0.2), made_up.evaluation(0.9)
RESULT = made_up.result(baseline=BEFORE.metrics, metrics=AFTER.metrics)


def cells(value: Shown) -> list[str]:
    """Return the texts in the cells of a result's HTML tables."""
    page = value._repr_html_() or ""
    return re.findall(r"<t[dh][^>]*>([^<]*)</t[dh]>", page)


def test_a_result_prints_its_verdict_and_the_values_of_the_terminal() -> None:
    text = str(RESULT)
    assert text == repr(RESULT)
    assert text.startswith("Training helped: pass^1 21 % -> 90 % (p ")
    assert "Saved as coding@1, now the default" in text
    assert len(text.splitlines()) < 20
    [row] = [r for r in rows(BEFORE.metrics, AFTER.metrics) if r.label == "pass^1"]
    for value in (row.before, row.after, row.full_gain):
        assert value.replace(" points", "") in text
        assert value in cells(RESULT)
    assert "Training helped" in (RESULT._repr_html_() or "")


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (AFTER, "tool reliability"),
        (AFTER.metrics, "tool reliability"),
        (compare(BEFORE.metrics, AFTER.metrics), "right arguments"),
    ],
    ids=["evaluation", "metrics", "comparison"],
)
def test_other_results_show_their_metrics(value: Shown, shown: str) -> None:
    assert shown in str(value)
    assert shown in cells(value)


class Theirs(Shown):
    """A result of another package."""


def test_a_result_of_another_package_prints_as_any_object() -> None:
    assert repr(Theirs()).startswith("<tests.ui.test_shown.Theirs object at ")
    assert Theirs()._repr_html_() is None
