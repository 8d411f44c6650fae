"""What a run takes, also of processes that have ended, and how one is interrupted."""

import os
import signal
import subprocess
import sys

from agentgym.train.interrupts import InterruptFlag
from agentgym.train.resource_use import Began, ResourceUse
from agentgym.train.run_state import RunState

BUSY = "import time\nwhile time.process_time() < 0.4: pass"


def test_cpu_seconds_count_from_the_beginning_with_ended_children() -> None:
    state, began = RunState(), Began.now()
    subprocess.run([sys.executable, "-c", BUSY], check=True)
    with ResourceUse(state, began) as use:
        subprocess.run([sys.executable, "-c", BUSY], check=True)
        use.update()

    assert state.cpu_seconds > 0.7
    assert state.wall_seconds > 0.7


def test_peak_memory_follows_a_process_that_grows() -> None:
    with ResourceUse(RunState(), Began.now()) as use:
        use.update()
        before = use.peak_memory_mb
        held = bytearray(os.urandom(1) * 2**28)
        use.update()
        del held

    assert use.peak_memory_mb > before + 200


def test_a_signal_is_waited_for_no_longer_than_asked() -> None:
    with InterruptFlag() as stop:
        assert not stop.wait(0.01)
        os.kill(os.getpid(), signal.SIGINT)
        assert stop.wait(10)
        assert stop.requested
