"""Show results in Python and in notebooks, with the tables of terminal and reports."""

from io import StringIO

from rich.console import Console, Group, RenderableType
from rich.text import Text

from agentgym.core.notebook import Shown
from agentgym.evaluate.compare import Comparison
from agentgym.evaluate.metrics import Metrics
from agentgym.evaluate.result import Evaluation
from agentgym.evaluate.rows import BRIEF, difference_rows, over, rows, values
from agentgym.rollout.summary import Summary
from agentgym.train.result import TrainingResult, saved_as
from agentgym.train.trained_agent import TrainedAgent
from agentgym.ui.cards import summary_view
from agentgym.ui.evaluation import verdict
from agentgym.ui.layout import grid, indent
from agentgym.ui.reports import (
    effect_parts,
    gains_table,
    render_evaluation,
    rendered,
    table,
)
from agentgym.ui.tables import comparison_view, metrics_view

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
    console.print(_forms(value.shown_as())[0])
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines())


def html(value: Shown) -> str | None:
    """Return a result as HTML with its tables; None if it has none."""
    markdown = _forms(value.shown_as())[1]
    return None if markdown is None else rendered(markdown)


def _forms(value: object) -> tuple[RenderableType, str | None]:
    """Return a result for the terminal, and as Markdown if it has tables."""
    match value:
        case TrainingResult(baseline=before, metrics=after, warm_start=warm):
            compared = comparison_view(before, after, BRIEF, warm)
            saved = saved_as(value.saved)
            view = Group(*map(Text, value.verdict), compared, Text(saved))
            gains = gains_table(rows(before, after, warm=warm))
            parts = [*effect_parts(value), _size(after), gains, f"{saved}\n"]
            return view, "\n".join(parts)
        case TrainedAgent(name=name, baseline=before, metrics=after):
            view = Group(Text(name), comparison_view(before, after))
            gains = gains_table(rows(before, after))
            return view, "\n".join([f"**{name}**\n", _size(after), gains])
        case Evaluation():
            title = f"{value.subject} on {value.scenario}, {value.split} split"
            return metrics_view(title, value.metrics), render_evaluation(value)
        case Metrics():
            parts = [_size(value), table(["", "value"], values(value))]
            return metrics_view("Metrics", value), "\n".join(parts)
        case Comparison():
            found, said = difference_rows(value), verdict(value)
            made = table(["", "after (B) - before (A)"], found)
            return Group(Text(said), indent(grid(*found))), f"{said}\n\n{made}"
        case Summary():
            return summary_view(value), None
    return Text(object.__repr__(value)), None  # a class of another package


def _size(metrics: Metrics) -> str:
    return f"{over(metrics)}.\n"
