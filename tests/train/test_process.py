"""What a run takes, also of processes that have ended, and how one is interrupted."""

import os
import signal
import subprocess
import sys

from agentgym.train.process import InterruptFlag, ResourceUse
from agentgym.train.run_folder import RunState

BUSY = "import time\nwhile time.process_time() < 0.4: pass"


def test_cpu_seconds_of_children_that_have_ended_count() -> None:
    state = RunState()
    with ResourceUse(state) as use:
        subprocess.run([sys.executable, "-c", BUSY], check=True)
        use.update()

    assert state.cpu_seconds > 0.3
    assert state.wall_seconds > 0
    assert use.peak_memory_mb > 1


def test_a_signal_is_waited_for_no_longer_than_asked() -> None:
    with InterruptFlag() as stop:
        assert not stop.wait(0.01)
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.wait(10)
        assert stop.requested
