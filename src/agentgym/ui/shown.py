"""Show results in Python and in notebooks, with the tables of terminal and reports."""

from functools import singledispatch
from io import StringIO

from rich.console import Console, Group, RenderableType
from rich.text import Text

from agentgym.core.notebook import Shown
from agentgym.evaluate.compare import Comparison
from agentgym.evaluate.metrics import Metrics
from agentgym.evaluate.result import Evaluation
from agentgym.rollout.summary import Summary
from agentgym.train.result import TrainingResult
from agentgym.train.trained_agent import TrainedAgent
from agentgym.ui.cards import summary_view
from agentgym.ui.comparison import BRIEF, difference_rows, rows, values
from agentgym.ui.evaluation import verdict
from agentgym.ui.layout import grid, indent
from agentgym.ui.reports import (
    effect_parts,
    gains_table,
    render_evaluation,
    rendered,
    table,
)
from agentgym.ui.tables import comparison_view, metrics_view, over, saved_as

_WIDTH = 88


def text(value: Shown) -> str:
    """Return a result as a text of a few lines."""
    out = StringIO()
    console = Console(
        file=out,
        width=_WIDTH,
        color_system=None,
        force_jupyter=False,
        highlight=False,
        markup=False,
        emoji=False,
    )
    console.print(_view(value.shown_as()))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def html(value: Shown) -> str | None:
    """Return a result as HTML with its tables; None if it has none."""
    markdown = _markdown(value.shown_as())
    return None if markdown is None else rendered(markdown)


@singledispatch
def _view(value: object) -> RenderableType:
    return Text(object.__repr__(value))  # a class of another package


@singledispatch
def _markdown(value: object) -> str | None:
    return None


@_view.register
def _(result: TrainingResult) -> RenderableType:
    compared = comparison_view(
        result.baseline, result.metrics, BRIEF, result.warm_start
    )
    return Group(*map(Text, result.verdict), compared, Text(saved_as(result.saved)))


@_markdown.register
def _(result: TrainingResult) -> str:
    compared = rows(result.baseline, result.metrics, warm=result.warm_start)
    parts = [*effect_parts(result), _size(result.metrics), gains_table(compared)]
    return "\n".join([*parts, f"{saved_as(result.saved)}\n"])


@_view.register
def _(agent: TrainedAgent) -> RenderableType:
    return Group(Text(agent.name), comparison_view(agent.baseline, agent.metrics))


@_markdown.register
def _(agent: TrainedAgent) -> str:
    compared = gains_table(rows(agent.baseline, agent.metrics))
    return "\n".join([f"**{agent.name}**\n", _size(agent.metrics), compared])


@_view.register
def _(found: Evaluation) -> RenderableType:
    title = f"{found.subject} on {found.scenario}, {found.split} split"
    return metrics_view(title, found.metrics)


_markdown.register(Evaluation, render_evaluation)


@_view.register
def _(metrics: Metrics) -> RenderableType:
    return metrics_view("Metrics", metrics)


@_markdown.register
def _(metrics: Metrics) -> str:
    return "\n".join([_size(metrics), table(["", "value"], values(metrics))])


@_view.register
def _(found: Comparison) -> RenderableType:
    return Group(Text(verdict(found)), indent(grid(*difference_rows(found))))


@_markdown.register
def _(found: Comparison) -> str:
    differences = table(["", "after (B) - before (A)"], difference_rows(found))
    return "\n".join([f"{verdict(found)}\n", differences])


_view.register(Summary, summary_view)


def _size(metrics: Metrics) -> str:
    return f"{over(metrics)}.\n"
