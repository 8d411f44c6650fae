"""LinesProgress: what a Python program shows of a run, unless it is silenced."""

import io
import logging
from pathlib import Path

import pytest

from agentgym import Trainer, TrainingConfig
from agentgym.engines.scripted import Reply
from agentgym.errors import TrainingFailedError
from agentgym.evaluate import events
from agentgym.evaluate.plain_progress import LinesProgress
from agentgym.train import loop
from tests.scripted_engine import ScriptedEngine
from tests.ui import made_up


def test_lines_tell_the_whole_run() -> None:
    stream = io.StringIO()
    progress = LinesProgress(stream)
    progress(made_up.plan())
    progress(events.PhaseStarted("before", 480))
    progress(events.BaselineMeasured(made_up.metrics(0.5)))
    progress(events.TimeLeft(120.0))
    progress(events.PhaseStarted("rollouts", 128))
    progress(made_up.step(1))
    progress(events.Validated(1, made_up.metrics(0.96), True))
    progress(events.Warned("it is slow"))
    progress(events.Ended("success criteria reached", made_up.ledger()))
    progress(events.PhaseStarted("after", 480))
    lines = stream.getvalue().splitlines()
    assert [line.partition(" ")[0] for line in lines if line[0] != " "] == [
        *("Training", "baseline:", "baseline:", "Time", "training:", "step", "step"),
        *("Training", "final"),
    ]
    assert "pass^1 50 %" in lines[2]
    stream.close()
    progress(events.Warned("nobody reads it"))


@pytest.mark.slow
@pytest.mark.parametrize("progress", [None, False])
def test_training_in_python_writes_lines_and_the_log(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    progress: bool | None,
) -> None:
    """The policy solves nothing, so that the run ends after its baseline."""
    monkeypatch.setattr(
        loop, "create_engine", lambda _: ScriptedEngine(lambda _: Reply("Done."))
    )
    config = TrainingConfig.create(
        framework="native", output=tmp_path, test_tasks=4, tracker="none", workers=1
    )
    with (
        caplog.at_level(logging.INFO, "agentgym"),
        pytest.raises(TrainingFailedError) as caught,
    ):
        Trainer(config).train("customer_support", progress=progress, episodes=64)
    assert "Training was not started" in str(caught.value)
    told = [line for line in caplog.messages if line.startswith("Training")]
    assert told[0].startswith(
        "Training customer_support starts: at most 64 rollouts, native, run "
    )
    assert told[1].startswith("Training ends early: TrainingFailed")
    err = capfd.readouterr().err
    assert ("baseline: " in err) == (progress is None)
    assert ("Training customer_support (native)" in err) == (progress is None)


def test_characters_that_a_stream_cannot_write_are_replaced() -> None:
    out = io.BytesIO()
    stream = io.TextIOWrapper(out, "ascii")
    LinesProgress(stream).write("\u00fcbung \u8ba2")
    assert out.getvalue() == b"?bung ?\n"
