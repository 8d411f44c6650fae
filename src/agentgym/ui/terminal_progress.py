"""TerminalProgress: show the progress of a run, live in a terminal or as lines."""

import sys
from collections.abc import Sequence
from time import monotonic
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.constrain import Constrain
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.prompt import Confirm
from rich.table import Table
from rich.text import Text

from agentgym.core.ledger import Ledger
from agentgym.evaluate.metrics import Metrics
from agentgym.evaluate.numbers import duration, percent
from agentgym.evaluate.plain_progress import (
    LinesProgress,
    ended_words,
    share_words,
    stalled_words,
    step_shares,
)
from agentgym.evaluate.progress import Plan, StepReport
from agentgym.train.interrupts import keyboard_interrupts
from agentgym.ui.tables import metrics_view, plan_view
from agentgym.ui.words import sparkline

_WORST = 3  # number of families to name


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
        self._is_live = console.is_terminal and not console.is_dumb_terminal
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
        if self._is_live:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_live:
            self._live.stop()

    def planned(self, plan: Plan) -> None:
        """Print the plan of the run."""
        self._show(plan_view(plan, is_full=self._is_verbose), Text(""))

    def write(self, line: str) -> None:
        """Print a line; do not wrap it when the output is not a terminal."""
        self._line_at = monotonic()
        self._print(line)

    def phase(self, name: str, total: int) -> None:
        """Show the progress of a new phase with ``total`` rollouts."""
        self._waiting = False
        super().phase(name, total)

    def baseline(self, metrics: Metrics) -> None:
        """Print the untrained policy's metrics."""
        self._phase = None
        title = "Baseline: the untrained policy on held-out tasks"
        self._show(metrics_view(title, metrics), Text(""))

    def forecast(self, least: float, most: float) -> None:
        """Print an estimate of the remaining time; the arguments are seconds."""
        super().forecast(least, most)
        self._print("")

    def warmed(self, words: str, metrics: Metrics) -> None:
        """Print the metrics after the warm start; ``words`` describe the warm start."""
        self._phase = None
        title = f"Warm start: {words}"
        self._console.print(metrics_view(title, metrics), Text(""), sep="\n")

    def stepped(self, report: StepReport) -> None:
        """Show the figures of a training step that has ended."""
        self._phase = None
        self._reported_at = monotonic()
        self._rewards.append(report.reward)
        super().stepped(report)

    def validated(self, step: int, metrics: Metrics, reached: bool) -> None:
        """Print a validation's metrics, and the worst families (kinds) of tasks."""
        self._phase = None
        line = Text.assemble(
            (f"step {step:<4}", "dim"),
            (" validation ", "bold"),
            share_words(metrics),
            ("  goal reached" if reached else "", "bold green"),
        )
        self._print(line)
        families = metrics.family_success()
        worst = [
            f"{name} {percent(found.value)}"
            for name, found in families.items()
            if found.value < 1
        ]
        if worst and len(families) > 1:
            self._print(Text(f"  worst: {', '.join(worst[:_WORST])}", "dim"))

    def warned(self, remarks: Sequence[str]) -> None:
        """Print warnings about the run."""
        for remark in remarks:
            self._print(Text(f"  note: {remark}", "yellow"))

    def allows(self, doubts: Sequence[str]) -> bool:
        """Print reasons not to train, and ask whether to train all the same."""
        return bool(self._asked(doubts, "Train all the same?"))

    def wants_warm_start(self, offer: str) -> bool | None:
        """Ask whether to do a warm start (imitation of known calls) before training."""
        return self._asked([offer], "Do that?")

    def may_run(self, tool: str) -> bool | None:
        """Ask whether the agent's tool, which the scenario lacks, may really run."""
        missing = f"The scenario has no tool named {tool}, which the agent has."
        return self._asked(
            [missing], "May it really run? Else its answers are made up."
        )

    def may_rent(self, quote: Sequence[str]) -> bool | None:
        """Ask whether to rent a machine; return None without a terminal."""
        return self._asked(quote, "Rent it?")

    def may_spend(self, terms: Sequence[str]) -> bool | None:
        """Print costs, and ask whether to spend the money; None without a terminal."""
        return self._asked(terms, "Spend it?")

    def _asked(self, lines: Sequence[str], question: str) -> bool | None:
        """Print lines, and ask a yes-or-no question; return None without a terminal."""
        self._phase = None
        if not (self._console.is_terminal and sys.stdin.isatty()):
            return None
        for each in lines:
            self._print(Text(each, "yellow"))
        self.__exit__()
        try:
            with keyboard_interrupts():
                return Confirm.ask(question, console=self._console)
        except EOFError:
            return None
        finally:
            self.__enter__()

    def stalled(self, reason: str | None) -> None:
        """Print why the run waits for the disk; if ``reason`` is None, it continues."""
        self._print(Text(stalled_words(reason), "bold yellow" if reason else "bold"))

    def ended(self, reason: str, ledger: Ledger) -> None:
        """Print the reason why training ended."""
        self.write_step()
        report, self._report, self._phase = self._report, None, None
        if words := ended_words(report, reason):
            self._print(Text(words, "bold"))

    def finished(self, verdict: Sequence[str]) -> None:
        """Do nothing: the command prints the whole result."""

    def _print(self, line: str | Text) -> None:
        """Print a line; do not wrap it when the output is not a terminal."""
        self._show(line, soft_wrap=not self._console.is_terminal)

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
    report: StepReport, left: float, rewards: list[float], width: int
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
