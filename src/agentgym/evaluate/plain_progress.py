"""LinesProgress: write a run's progress as plain lines, for pipes and log files."""

import sys
from collections.abc import Sequence
from contextlib import suppress
from time import monotonic
from typing import TextIO

from agentgym.core.files import WAIT_S
from agentgym.core.ledger import Ledger
from agentgym.evaluate.metrics import Metrics
from agentgym.evaluate.numbers import duration, number, percent, plural, rough_range
from agentgym.evaluate.progress import Plan, Progress, StepReport

STEP_S = 5.0
"""Minimum seconds between two lines about steps."""
COUNT_S = 15.0
"""Seconds without a line after which the number of rollouts is written."""
_PHASES = {
    "timing": "timing",
    "before": "baseline",
    "plans": "warm start: plans",
    "imitation": "warm start: learning",
    "warmed": "warm start: test",
    "rollouts": "training",
    "after": "final test",
}


class LinesProgress(Progress):
    """Writes the events of a run as plain lines. ``Trainer`` uses it by default."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream
        self._is_live = False  # a subclass draws counts and steps itself
        self._phase: str | None = None
        self._total = self._done = 0
        self._report: StepReport | None = None
        self._written: StepReport | None = None
        self._step_at = float("-inf")
        self._line_at = monotonic()

    def write(self, line: str) -> None:
        """Write one line; ignore errors of a closed stream."""
        self._line_at = monotonic()
        stream = self._stream or sys.stderr
        with suppress(OSError, ValueError):  # the stream is closed
            encoding = getattr(stream, "encoding", None) or "utf-8"
            stream.write(f"{line}\n".encode(encoding, "replace").decode(encoding))
            stream.flush()

    def planned(self, plan: Plan) -> None:
        """Write the scenario, the model, the device and the budget of the run."""
        config = plan.config
        self.write(
            f"Training {config.scenario_name} ({config.framework}): {plan.model} on "
            f"{plan.device}, at most {plural(config.episodes, 'rollout')}, run "
            f"{plan.run}"
        )

    def starting(self, what: str) -> None:
        """Write that something slow starts; ``what`` is a sentence."""
        self.write(what)

    def fitted(self, words: str) -> None:
        """Write how many tasks, attempts and steps fit into the run's time limit."""
        self.write(words)

    def phase(self, name: str, total: int) -> None:
        """Start to count the rollouts of a phase."""
        self._phase, self._total, self._done = _PHASES.get(name, name), total, 0
        if not self._is_live and self._report is None:
            self.write(f"{self._phase}: {plural(total, 'rollout')} ...")

    def rollout_done(self) -> None:
        """Count a rollout; write the count if nothing was written for a while."""
        self._done += 1
        if not self._is_live and monotonic() - self._line_at >= COUNT_S:
            self.write(f"{self._phase}: {self._done:,} of {self._total:,} rollouts")

    def baseline(self, metrics: Metrics) -> None:
        """Write the untrained policy's metrics."""
        self.write(f"baseline: {share_words(metrics)}")

    def forecast(self, least: float, most: float) -> None:
        """Write the estimate of the remaining time."""
        self.write(forecast_words(least, most))

    def warmed(self, words: str, metrics: Metrics) -> None:
        """Write the metrics after the warm start."""
        self.write(f"warm start: {words}: {share_words(metrics)}")

    def stepped(self, report: StepReport) -> None:
        """Write a step's figures; do nothing if a step was written just before."""
        self._report = report
        if monotonic() - self._step_at >= STEP_S:
            self.write_step()

    def write_step(self) -> None:
        """Write the figures of the newest step if they were not written before."""
        report = self._report
        if self._is_live or report is None or report is self._written:
            return
        self._written, self._step_at = report, monotonic()
        self.write(step_words(report))

    def validated(self, step: int, metrics: Metrics, reached: bool) -> None:
        """Write a validation's metrics."""
        goal = "  goal reached" if reached else ""
        self.write(f"step {step}  validation {share_words(metrics)}{goal}")

    def warned(self, remarks: Sequence[str]) -> None:
        """Write warnings about the run."""
        for remark in remarks:
            self.write(f"  note: {remark}")

    def stalled(self, reason: str | None) -> None:
        """Write that the run waits for the disk; for None, that it continues."""
        self.write(stalled_words(reason))

    def ended(self, reason: str, ledger: Ledger) -> None:
        """Write why training ended."""
        self.write_step()
        report, self._report = self._report, None
        if words := ended_words(report, reason):
            self.write(words)

    def finished(self, verdict: Sequence[str]) -> None:
        """Write whether training helped."""
        for sentence in verdict:
            self.write(sentence)


def share_words(metrics: Metrics) -> str:
    """Format the main shares: ``"tool 84 % arguments 79 % pass^1 55 %"`` and so on."""
    shown = (
        ("tool", metrics.right_tool),
        ("arguments", metrics.right_arguments),
        ("pass^1", metrics.pass_1),
        ("reliability", metrics.tool_reliability),
    )
    return "  ".join(f"{name} {percent(m.value)}" for name, m in shown if m.n)


def forecast_words(least: float, most: float) -> str:
    """Describe the least and most seconds that a run's whole budget still takes."""
    return (
        f"Time left: at most {rough_range(least, most)}, if the whole budget is spent; "
        "training ends when validation stops rising"
    )


def step_words(report: StepReport) -> str:
    """Format a step's figures as one line."""
    return (
        f"step {report.step}  {report.episodes:,}/{report.budget:,} rollouts  "
        f"{'  '.join(map(' '.join, step_shares(report)))}  "
        f"{report.tokens_per_second:,.0f} tokens/s  {break_words(report)}"
        f"at most {duration(report.seconds_left)} left"
    )


def break_words(report: StepReport) -> str:
    """Format ``StepReport.breaks``, e.g. ``"3 prefix breaks"``; empty for 0."""
    return f"{plural(report.breaks, 'prefix break')}  " if report.breaks else ""


def step_shares(report: StepReport) -> list[tuple[str, str]]:
    """Return a step's reward and known shares, as pairs of name and formatted value."""
    shares = [
        ("right tool", report.right_tool),
        ("arguments", report.right_arguments),
        ("success", report.success_rate),
        ("reliability", report.tool_reliability),
    ]
    known = [(name, percent(share)) for name, share in shares if share is not None]
    return [("reward", number(report.reward)), *known]


def stalled_words(reason: str | None) -> str:
    """Return a message that a run waits for the disk; for None, that it continues."""
    if reason is None:
        return "Writing goes on."
    return f"Paused: {reason}. Waiting {WAIT_S:.0f} s for that to be fixed."


def ended_words(report: StepReport | None, reason: str) -> str:
    """Describe when and why training ended; empty without a last step."""
    if report is None:
        return ""
    steps, episodes = plural(report.step, "step"), plural(report.episodes, "rollout")
    return f"Training ended after {steps} and {episodes}: {reason}."
