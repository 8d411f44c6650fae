"""What a run takes: also what processes took that have ended."""

import subprocess
import sys

from agentgym.train.process import ResourceUse
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
