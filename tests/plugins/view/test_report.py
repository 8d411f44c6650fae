"""Reports as one HTML file, and the section on results that got worse."""

import re
from dataclasses import asdict
from pathlib import Path

from agentgym.evaluate.metrics import Metrics, TaskResult
from agentgym.plugins.view.report import (
    fallen_families,
    lost_calls,
    render_report,
    run_html,
    run_pictures,
    worse_parts,
    write_reports,
)
from agentgym.rollout.store.store import Store
from agentgym.ui.reports import html_page
from tests.plugins.view.made_run import fill, make_run
from tests.ui import made_up

STEPS = [asdict(made_up.step(number)) for number in range(1, 31)]


def measured(
    successes: dict[str, int], right: float = 1.0, *, tasks: int = 2
) -> Metrics:
    """Return metrics of eight attempts at each of some tasks of each family."""
    found = tuple(
        TaskResult(
            task_id=f"{family}/{number}",
            family=family,
            attempts=8,
            successes=count,
            sums={"right_arguments": (8 * right, 8.0)},
        )
        for family, count in successes.items()
        for number in range(tasks)
    )
    return made_up.metrics(0.5).model_copy(update={"by_task": found})


def test_a_family_that_fell_is_named_with_its_test() -> None:
    before = measured({"refund": 8, "track": 6, "cancel": 2})
    after = measured({"refund": 1, "track": 5, "cancel": 8})
    found = {each.name: is_real for each, is_real in fallen_families(before, after)}
    assert found == {"refund": True, "track": False}
    result = made_up.result(baseline=before, metrics=after, breakdown={})
    text = "\n".join(worse_parts(result))
    assert "Success fell in 2 families of tasks, beyond chance in 1." in text
    assert re.search(r"\| refund \| 100 % \| 12 % \| p < 0.0001 \| yes \|", text)
    assert re.search(r"\| track \| 75 % \| 62 % \| p = 0.\d+ \| no \|", text)
    assert "cancel" not in text


def test_chance_alone_names_few_families() -> None:
    """Of twenty families that did not change, few fall, and none beyond chance."""
    same = {f"family{number}": 4 for number in range(20)}
    other = {name: 4 + (1 if place % 2 else -1) for place, name in enumerate(same)}
    found = fallen_families(measured(same), measured(other))
    assert len(found) == 10
    assert not any(is_real for _, is_real in found)


def test_wording_that_lost_right_calls_is_quoted() -> None:
    before, after = measured({"lint": 8}), measured({"lint": 8}, right=0.25)
    assert [task for task, *_ in lost_calls(before, after)] == ["lint/0", "lint/1"]
    assert lost_calls(after, before) == []
    result = made_up.result(breakdown={"out-of-vocabulary": (before, after)})
    said = {"lint/0": "Ascertain | <b>the</b>\nfaults of a.py."}
    text = render_report(result, instructions=said)
    assert "2 lost right calls" in text
    assert "| lint/0 | 100 % | 25 % | Ascertain \\| &lt;b>the&lt;/b> faults" in text


def test_the_page_needs_nothing_else_and_runs_nothing() -> None:
    report = render_report(made_up.result())
    page = html_page(report, run_pictures(made_up.result(), STEPS))
    assert page.count("<svg") >= 5
    assert "<h2>Before and after, on held-out tasks</h2>" in page
    assert "default-src 'none'" in page
    for outside in ("<script", "src=", "<link", "http://", "@import", "url("):
        assert outside not in page, outside


def test_text_of_a_run_stays_text() -> None:
    hostile = "<script>alert(1)</script> [x](javascript:alert(1))"
    page = html_page(
        f"# {hostile}\n\n{hostile}\n\n## S\n\n| a |\n| --- |\n| {hostile} |"
    )
    assert "<script>alert" not in page
    assert 'href="javascript' not in page
    assert page.count("&lt;script&gt;alert(1)") == 4


def test_a_run_leaves_both_reports(tmp_path: Path) -> None:
    run = make_run(tmp_path / "demo", result=True)
    with Store(run.path / "rollouts.db") as store:
        fill(store)
    result = made_up.result(run.path)
    write_reports(result)
    page = (run.path / "report.html").read_text()
    assert "Tool needed (rows), tool called (columns), after training" in page
    text = (run.path / "report.md").read_text()
    assert "| **all** | **10,000** |" in text
    assert "| pass^1 | 52 % [48, 56] |" in text


def test_a_run_without_a_result_shows_its_curves(tmp_path: Path) -> None:
    run = make_run(tmp_path / "young", status="running")
    page = run_html(run, "killed")
    assert "its status is killed" in page
    assert "<svg" in page
