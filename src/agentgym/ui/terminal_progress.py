"""TerminalProgress: show the progress of a run, live in a terminal or as lines."""

import sys
from time import monotonic
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.constrain import Constrain
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.prompt import Confirm
from rich.table import Table
from rich.text import Text

from agentgym.evaluate import events
from agentgym.evaluate.metrics import METRICS, Metrics
from agentgym.evaluate.numbers import duration, percent
from agentgym.evaluate.plain_progress import (
    LinesProgress,
    line_of,
    share_words,
    step_shares,
)
from agentgym.evaluate.rows import BRIEF
from agentgym.train.interrupts import keyboard_interrupts
from agentgym.ui.layout import sparkline
from agentgym.ui.tables import metrics_view, plan_view

_WORST = 3  # number of families to name
_ENDS_PHASE = (
    events.BaselineMeasured
    | events.WarmStartDone
    | events.StepReport
    | events.Validated
    | events.Question
    | events.Ended
)


class TerminalProgress(LinesProgress):
    """Shows a run's progress on ``console``; use it as a context manager.

    In a terminal, the newest state is redrawn in the same place. A log file, a pipe or
    a terminal without cursor movement gets plain lines. ``is_verbose`` shows all facts
    of the plan.
    """

    def __init__(self, console: Console, *, is_verbose: bool = False) -> None:
        super().__init__()
        self._console = console
        self._is_verbose = is_verbose
        self.is_live = console.is_terminal and not console.is_dumb_terminal
        self._waiting = True
        self._reported_at = 0.0
        self._rewards: list[float] = []
        self._live = Live(
            get_renderable=self.state,
            console=console,
            refresh_per_second=4,
            transient=True,
        )

    def __enter__(self) -> Self:
        if self.is_live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.is_live:
            self._live.stop()

    def write(self, line: str | Text, style: str = "") -> None:
        """Print a line; do not wrap it when the output is not a terminal."""
        self._line_at = monotonic()
        line = Text(line, style) if isinstance(line, str) else line
        self._show(line, soft_wrap=not self._console.is_terminal)

    def __call__(self, event: events.Event) -> bool | None:
        """Show an event; answer a question, or return None without a terminal."""
        if isinstance(event, _ENDS_PHASE):
            self._phase = None
        match event:
            case events.Plan():
                self._show(plan_view(event, is_full=self._is_verbose), Text(""))
            case events.BaselineMeasured(metrics):
                title = "Baseline: the untrained policy on held-out tasks"
                self._show_metrics(title, metrics)
            case events.WarmStartDone(words, metrics):
                self._show_metrics(f"Warm start: {words}", metrics)
            case events.Validated():
                self._show_validation(event)
            case events.Stalled(reason):
                self.write(line_of(event), "bold yellow" if reason else "bold")
            case events.Question():
                return self._ask(event)
            case events.Finished():  # the command prints the whole result
                pass
            case _:
                if isinstance(event, events.PhaseStarted):
                    self._waiting = False
                if isinstance(event, events.StepReport):
                    self._reported_at = monotonic()
                    self._rewards.append(event.reward)
                super().__call__(event)
                if isinstance(event, events.TimeLeft):
                    self.write("")
        return None

    def _show_validation(self, event: events.Validated) -> None:
        """Print a validation's metrics, and the worst families (kinds) of tasks."""
        line = Text.assemble(
            (f"step {event.step:<3}", "dim"),
            (" validation ", "bold"),
            share_words(event.metrics),
            ("  goal reached" if event.reached else "", "bold green"),
        )
        self.write(line)
        families = event.metrics.family_success()
        worst = [
            f"{name} {percent(found.value)}"
            for name, found in families.items()
            if found.value < 1
        ]
        if worst and len(families) > 1:
            self.write(f"  worst: {', '.join(worst[:_WORST])}", "dim")

    def _ask(self, question: events.Question) -> bool | None:
        if not (self._console.is_terminal and sys.stdin.isatty()):
            return None
        for fact in question.facts:
            self.write(fact, "yellow")
        self.__exit__()
        try:
            with keyboard_interrupts():
                return Confirm.ask(question.text, console=self._console)
        except EOFError:
            return None
        finally:
            self.__enter__()

    def _show_metrics(self, title: str, metrics: Metrics) -> None:
        names = METRICS if self._is_verbose else BRIEF
        self._show(metrics_view(title, metrics, names), Text(""))

    def _show(self, *parts: RenderableType, soft_wrap: bool = False) -> None:
        """Print above the live view, which is at the bottom of the terminal.

        The live view is not redrawn at the same time, because its old lines would then
        stay on the screen.
        """
        with self._live._lock:
            self._console.print(*parts, sep="\n", soft_wrap=soft_wrap)

    def state(self) -> RenderableType:
        """Draw the live view: the training so far and the current phase."""
        width = live_width(self._console)
        parts: list[RenderableType] = []
        if self._waiting:
            parts.append(Text("loading the policy ...", "dim"))
        if self._report is not None:
            report = self._report
            left = report.seconds_left - (monotonic() - self._reported_at)
            count = f"{report.episodes:,}/{report.budget:,} rollouts"
            share = report.episodes / report.budget
            parts.append(_bar(f"step {report.step}", share, count, width))
            parts.append(_figures(report, left, self._rewards, width))
        if self._phase is not None:
            count = f"{self._done:,}/{self._total:,} rollouts"
            share = self._done / max(1, self._total)
            parts.append(_bar(self._phase, share, count, width))
        return Constrain(Group(*parts), width)


def live_width(console: Console) -> int:
    """Return the width of the live view in columns, at which its lines never wrap.

    The width leaves room for ``^C``, which terminals show. It is at most 77, so that
    the user can make the terminal narrower, down to 80 columns.
    """
    return min(console.width, 80) - len("^C ")


def _figures(
    report: events.StepReport, left: float, rewards: list[float], width: int
) -> RenderableType:
    (name, reward), *shares = step_shares(report)
    text = Text(overflow="fold")
    for label, value in [
        (name, f"{reward} {sparkline(rewards, max(6, width // 8))}"),
        *shares,
        ("tokens/s", f"{report.tokens_per_second:,.0f}"),
        *([("prefix breaks", f"{report.breaks:,}")] if report.breaks else []),
        ("left", duration(left)),
    ]:
        text.append(f"{label} ", "dim").append(value, "bold").append("  ")
    return text


def _bar(name: str, share: float, count: str, width: int) -> RenderableType:
    grid = Table.grid(padding=(0, 1, 0, 0))
    grid.add_column(style="bold", min_width=len("validation"), no_wrap=True)
    bar = ProgressBar(total=1.0, completed=share, width=max(8, width // 3))
    grid.add_row(name, bar, Text(count, no_wrap=True))
    return grid
