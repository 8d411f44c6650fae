"""TerminalProgress: redrawn on a terminal, plain lines elsewhere."""

import io

import pytest
from rich.console import Console

from agentgym.evaluate import events
from agentgym.evaluate import plain_progress as lines
from agentgym.ui.terminal_progress import TerminalProgress
from tests.ui import made_up

QUESTION = events.Question("warm start", ("--warm-start imitates calls.",), "Do that?")


def watch(console: Console, steps: int = 12) -> None:
    """Report a whole run."""
    with TerminalProgress(console) as progress:
        progress(made_up.plan())
        progress(events.Message("vLLM starts."))
        progress(events.PhaseStarted("before", 480))
        for _ in range(480):
            progress(events.RolloutDone())
        progress(events.BaselineMeasured(made_up.metrics(0.52)))
        progress(events.TimeLeft(290.0))
        for number in range(1, steps + 1):
            progress(events.PhaseStarted("rollouts", 128))
            progress(made_up.step(number))
        progress(events.Validated(steps, made_up.metrics(0.96), True))
        progress(events.Ended("success criteria reached", made_up.ledger()))
        progress(events.PhaseStarted("after", 480))


def plain(steps: int = 12, width: int = 80) -> str:
    """Return what is written where there is no terminal."""
    file = io.StringIO()
    watch(Console(file=file, width=width, highlight=False), steps)
    return file.getvalue()


def test_plain_output_has_the_whole_story() -> None:
    text = plain()
    assert not {"\x1b", "\r"} & set(text)
    for part in (
        "vLLM starts.\n",
        "Time left: at most 4 min 50 s, if the whole budget is spent",
        "baseline: 480 rollouts",
        "step 1  128/10,000 rollouts  reward -0.36  success 32 %  reliability",
        "4,000 tokens/s  at most 3 min 54 s left",
        "validation tool 96 %  arguments 96 %  pass^1 96 %  reliability 96 %  goal",
        "Training ended after 12 steps and 1,536 rollouts: success criteria reached.",
        "final test: 480 rollouts",
    ):
        assert part in text


def test_a_terminal_without_cursor_movement_gets_lines(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setattr(lines, "COUNT_S", 0.0)
    file = io.StringIO()
    watch(Console(file=file, width=80, force_terminal=True, highlight=False))
    text = file.getvalue()
    assert "baseline: 17 of 480 rollouts" in text
    assert "step 1  128/10,000 rollouts" in text
    assert "\r" not in text


def test_fast_steps_are_written_only_now_and_then() -> None:
    written = [line for line in plain(50).splitlines() if "tokens/s" in line]
    assert written[0].startswith("step 1 ")
    assert written[-1].startswith("step 50 ")
    assert len(written) < 10


def test_terminal_state_fits() -> None:
    width = 60
    file = io.StringIO()
    console = Console(file=file, width=width, height=40, force_terminal=True)
    progress = TerminalProgress(console)
    progress(events.PhaseStarted("rollouts", 128))
    progress(events.RolloutDone())
    for number in range(1, 30):
        progress(made_up.step(number))
    progress(events.PhaseStarted("rollouts", 128))
    lines = console.render_lines(progress.state(), pad=False)
    texts = ["".join(segment.text for segment in line) for line in lines]
    assert max(map(len, texts)) <= width
    shown = "\n".join(texts)
    for part in ("step 29", "3,712/10,000 rollouts", "success 88 %", "tokens/s 4,000"):
        assert part in shown
    assert "0/128 rollouts" in shown


def test_terminal_is_given_back_after_an_error() -> None:
    file = io.StringIO()
    console = Console(file=file, force_terminal=True)
    with pytest.raises(ZeroDivisionError), TerminalProgress(console):
        _ = 1 / 0
    assert file.getvalue().endswith("\x1b[?25h") or "\x1b[?25h" in file.getvalue()


def test_a_terminal_is_asked_for_a_warm_start(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def ask(question: str, **_: object) -> bool:
        asked.append(question)
        return True

    monkeypatch.setattr("sys.stdin.isatty", lambda: True)
    monkeypatch.setattr("agentgym.ui.terminal_progress.Confirm.ask", ask)
    console = Console(file=io.StringIO(), force_terminal=True, width=80)
    with TerminalProgress(console) as progress:
        assert progress(QUESTION) is True
    assert asked == ["Do that?"]
    assert isinstance(console.file, io.StringIO)
    assert "--warm-start imitates calls." in console.file.getvalue()
