"""TerminalProgress in a real terminal: nothing of what is redrawn stays behind."""

import signal

import pytest

from tests.ui.screen import Terminal

RUN = """
import sys, time
from rich.console import Console
from agentgym.evaluate.events import *
from agentgym.ui.terminal_progress import TerminalProgress
from tests.ui import made_up

with TerminalProgress(Console(highlight=False)) as progress:
    progress(made_up.plan())
    for phase in ("before", "rollouts", "validation", "rollouts", "after"):
        progress(PhaseStarted(phase, 480))
        for number in range(6):
            progress(RolloutDone())
            time.sleep(0.06)
        if phase == "before":
            progress(BaselineMeasured(made_up.metrics(0.52)))
            progress(TimeLeft(250.0))
            print("a user's own code prints")
        elif phase == "rollouts":
            progress(made_up.step(31, tokens_per_second=1234567.0))
        elif phase == "validation":
            progress(Validated(31, made_up.metrics(0.96), False))
    THEN
    progress(Ended("budget spent", made_up.ledger()))
print("The end.")
"""
REDRAWN = "━", "╸", "loading", "tokens/s", "/480 rollouts"


def watch(terminal: Terminal, then: str = "", **options: object) -> int:
    script = RUN.replace("THEN", then or "pass")
    return terminal.run("-c", script, PYTHONPATH=".", **options)  # type: ignore[arg-type]


def assert_nothing_is_left(terminal: Terminal) -> None:
    screen = terminal.screen
    for part in REDRAWN:
        assert part not in screen.text
    assert not screen.cursor_hidden
    assert "Baseline: the untrained policy" in screen.text
    assert screen.text.count("step 31  validation") == 1


@pytest.mark.slow
def test_only_what_is_printed_stays() -> None:
    terminal = Terminal(80, 24)
    shown: list[str] = []

    def look(terminal: Terminal, said: str) -> None:
        shown.append(terminal.screen.text)

    assert watch(terminal, on_text=look) == 0
    assert_nothing_is_left(terminal)
    assert terminal.screen.wraps == 0
    end = "Training ended after 31 steps and 3,968 rollouts: budget spent.\nThe end."
    assert terminal.screen.text.rstrip().endswith(f"\n{end}")
    assert "\na user's own code prints\n" in terminal.screen.text
    assert any("━" in text and "480 rollouts" in text for text in shown)
    assert all(text.count("tokens/s") <= 1 for text in shown)


@pytest.mark.slow
def test_a_terminal_that_becomes_narrower_keeps_nothing_more() -> None:
    terminal = Terminal(160, 48)

    def narrow(terminal: Terminal, said: str) -> None:
        if "validation" in said:
            terminal.resize(80, 24)

    assert watch(terminal, on_text=narrow) == 0
    assert_nothing_is_left(terminal)
    assert terminal.screen.wraps == 0


@pytest.mark.slow
def test_ctrl_c_leaves_nothing_dead() -> None:
    terminal = Terminal(80, 24)

    def interrupt(terminal: Terminal, said: str) -> None:
        if "WAITING" in said and not typed:
            typed.append("^C")
            terminal.type("\x03")

    typed: list[str] = []
    then = 'print("WAITING"); time.sleep(60)'
    assert watch(terminal, then, on_text=interrupt) == -signal.SIGINT
    assert typed
    assert_nothing_is_left(terminal)
    assert "KeyboardInterrupt" in terminal.screen.text
