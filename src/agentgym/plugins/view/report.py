"""Write a run's report into its folder, as Markdown and HTML."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from agentgym.core.files import write_atomically
from agentgym.errors import AgentGymError
from agentgym.evaluate.call_classes import ConfusionMatrix
from agentgym.plugins.view.opened_run import OpenedRun
from agentgym.rollout.store.reader import StoreReader
from agentgym.train.result import TrainingResult
from agentgym.train.run_folder import RunFolder
from agentgym.train.status import bill
from agentgym.ui.reports.html import html_page, run_pictures
from agentgym.ui.reports.markdown import render_report
from agentgym.ui.reports.worse import UNUSUAL


def write_reports(result: TrainingResult) -> None:
    """Write ``report.md`` and ``report.html`` into the folder of a finished run."""
    run = RunFolder(result.artifacts.run)
    text = run_markdown(run, result)
    write_atomically(run.path / "report.md", text)
    write_atomically(run.path / "report.html", _page(run, result, text))


def run_markdown(run: RunFolder, result: TrainingResult) -> str:
    """Return the report of a finished run as Markdown."""
    requests = _instructions(run.path, result)
    return render_report(result, bill(run.path), requests, _confusion(run))


def run_html(run: RunFolder, status: str) -> str:
    """Return a run's report as HTML; without a result, only status and curves."""
    result = TrainingResult.load(run.path)
    if result is not None:
        return _page(run, result, run_markdown(run, result))
    text = f"# {run.path.name}\n\nThis run has no result: its status is {status}.\n"
    return _page(run, None, text)


def _page(run: RunFolder, result: TrainingResult | None, text: str) -> str:
    return html_page(text, run_pictures(result, _steps(run)))


def _steps(run: RunFolder) -> Sequence[dict[str, Any]]:
    """Return the records of a run's steps; [] if they cannot be read."""
    try:
        return run.metrics()
    except AgentGymError:
        return []


def _instructions(run: Path, result: TrainingResult) -> dict[str, str]:
    """Return the requests of out-of-vocabulary tasks, by task id, if readable."""
    if UNUSUAL not in result.breakdown:
        return {}
    try:
        return StoreReader(run / "rollouts.db").instructions("out_of_vocabulary")
    except AgentGymError:
        return {}


def _confusion(run: RunFolder) -> ConfusionMatrix | None:
    """Return the confusion matrix of tools after training; None if it is unknown."""
    try:
        matrix = OpenedRun(run).confusion("after")["matrix"]
    except (AgentGymError, ValueError):
        return None
    assert matrix is None or isinstance(matrix, ConfusionMatrix)
    return matrix
