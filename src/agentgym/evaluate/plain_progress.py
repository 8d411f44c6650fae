"""Write a run's events as lines, or as bars below a notebook's cell."""

import sys
from contextlib import suppress
from time import monotonic
from typing import Any, TextIO

from agentgym.core.files import WAIT_S
from agentgym.core.notebook import notebook_bar
from agentgym.evaluate import events
from agentgym.evaluate.metrics import Metrics
from agentgym.evaluate.numbers import duration, number, percent, plural

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


def line_of(event: events.Event) -> str:
    """Describe an event in a line; empty for some, e.g. one rollout or a question."""
    match event:
        case events.Plan(config=config):
            return (
                f"Training {config.scenario_name} ({config.framework}): {event.model} "
                f"on {event.device}, at most {plural(config.episodes, 'rollout')}, "
                f"run {event.run}"
            )
        case events.Message(text):
            return text
        case events.Warned(text):
            return f"  note: {text}"
        case events.PhaseStarted(name, total):
            return f"{_PHASES.get(name, name)}: {plural(total, 'rollout')} ..."
        case events.BaselineMeasured(metrics):
            return f"baseline: {share_words(metrics)}"
        case events.TimeLeft(seconds):
            return (
                f"Time left: at most {duration(seconds)}, if the whole budget is "
                "spent; training ends when validation stops rising"
            )
        case events.WarmStartDone(words, metrics):
            return f"warm start: {words}: {share_words(metrics)}"
        case events.StepReport(breaks=breaks):
            return (
                f"step {event.step}  {event.episodes:,}/{event.budget:,} rollouts  "
                f"{'  '.join(map(' '.join, step_shares(event)))}  "
                f"{event.tokens_per_second:,.0f} tokens/s  "
                f"{plural(breaks, 'prefix break') + '  ' if breaks else ''}"
                f"at most {duration(event.seconds_left)} left"
            )
        case events.Validated(step, metrics, reached):
            goal = "  goal reached" if reached else ""
            return f"step {step}  validation {share_words(metrics)}{goal}"
        case events.Stalled(None):
            return "Writing goes on."
        case events.Stalled(reason):
            return f"Paused: {reason}. Waiting {WAIT_S:.0f} s for that to be fixed."
        case events.Finished(verdict):
            return "\n".join(verdict)
    return ""


def share_words(metrics: Metrics) -> str:
    """Format the main shares: ``"tool 84 % arguments 79 % pass^1 55 %"`` and so on."""
    shown = (
        ("tool", metrics.right_tool),
        ("arguments", metrics.right_arguments),
        ("pass^1", metrics.pass_1),
        ("reliability", metrics.tool_reliability),
    )
    return "  ".join(f"{name} {percent(m.value)}" for name, m in shown if m.n)


def step_shares(report: events.StepReport) -> list[tuple[str, str]]:
    """Return a step's reward and known shares, as pairs of name and formatted value."""
    shares = [
        ("right tool", report.right_tool),
        ("arguments", report.right_arguments),
        ("success", report.success_rate),
        ("reliability", report.tool_reliability),
    ]
    known = [(name, percent(share)) for name, share in shares if share is not None]
    return [("reward", number(report.reward)), *known]


class LinesProgress:
    """Writes the events of a run as plain lines. ``Trainer`` uses it by default.

    A subclass that draws counts and steps itself sets ``is_live``.
    """

    is_live = False

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream
        self._phase: str | None = None
        self._total = self._done = 0
        self._report: events.StepReport | None = None
        self._written: events.StepReport | None = None
        self._step_at = float("-inf")
        self._line_at = monotonic()

    def write(self, line: str, style: str = "") -> None:
        """Write one line; ignore errors of a closed stream."""
        self._line_at = monotonic()
        stream = self._stream or sys.stderr
        with suppress(OSError, ValueError):  # the stream is closed
            encoding = getattr(stream, "encoding", None) or "utf-8"
            stream.write(f"{line}\n".encode(encoding, "replace").decode(encoding))
            stream.flush()

    def __call__(self, event: events.Event) -> bool | None:
        """Write an event; skip counts and steps that follow closely on another line."""
        match event:
            case events.PhaseStarted():
                self._phase = _PHASES.get(event.name, event.name)
                self._total, self._done = event.total, 0
                if not self.is_live and self._report is None:
                    self.write(line_of(event))
            case events.RolloutDone():
                self._done += 1
                is_due = monotonic() - self._line_at >= COUNT_S
                if is_due and not self.is_live and self._phase:
                    count = f"{self._done:,} of {self._total:,} rollouts"
                    self.write(f"{self._phase}: {count}")
            case events.StepReport():
                self._report = event
                if monotonic() - self._step_at >= STEP_S:
                    self._write_step()
            case events.Ended():
                self._write_step()
                if (last := self._report) is not None:
                    done = plural(last.step, "step"), plural(last.episodes, "rollout")
                    reason = f"{' and '.join(done)}: {event.reason}."
                    self.write(f"Training ended after {reason}", "bold")
                self._report = None
            case events.Question():
                return None
            case _:
                self.write(
                    line_of(event), "yellow" if isinstance(event, events.Warned) else ""
                )
        return None

    def _write_step(self) -> None:
        report = self._report
        if not self.is_live and report is not None and report is not self._written:
            self._written, self._step_at = report, monotonic()
            self.write(line_of(report))


class NotebookProgress(LinesProgress):
    """Writes a run's events as lines, with a bar for each phase and for all steps."""

    is_live = True

    def __init__(self) -> None:
        super().__init__()
        self._bar: Any = None
        self._steps: Any = None  # the bar of all training steps
        self._budget = 0

    def write(self, line: str, style: str = "") -> None:
        """Write a line above the bars."""
        from tqdm import tqdm

        tqdm.write(line, file=sys.stdout)

    def __call__(self, event: events.Event) -> bool | None:
        """Move the bars, and write other events."""
        match event:
            case events.Plan():
                self._budget = event.config.episodes
            case events.PhaseStarted():
                is_training = event.name == "rollouts"
                if self._steps is None:
                    most = self._budget if is_training else event.total
                    self._bar = notebook_bar(_PHASES.get(event.name, event.name), most)
                    self._steps = self._bar if is_training else None
                else:
                    self._bar = self._steps if is_training else None
            case events.RolloutDone() if self._bar is not None:
                self._bar.update()
                if self._bar is not self._steps and self._bar.n >= self._bar.total:
                    self._bar.close()
            case events.StepReport():
                self._steps.n = event.episodes
                shares = ", ".join(map(" ".join, step_shares(event)))
                self._steps.set_postfix_str(f"step {event.step}, {shares}")
            case events.Ended() if self._steps is not None:
                self._steps.total = self._steps.n
                self._steps.close()
                self._steps = None
        return super().__call__(event)
