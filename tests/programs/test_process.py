"""Programs as processes: bounds, children, and the end of who started them.

Slow: each test starts processes.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agentgym.errors import ProgramError
from agentgym.programs.process import ProgramEnd, ProgramRun, new_folder
from tests.processes import MARK, processes_of

pytestmark = pytest.mark.slow


def run(
    command: str,
    given: bytes = b"",
    *,
    timeout_s: float | None = 60.0,
    memory_mb: int = 1024,
    **variables: str,
) -> ProgramEnd:
    words = ["sh", "-c", command]
    made = ProgramRun(words, new_folder(), variables, memory_mb=memory_mb)
    return made.wait(given, timeout_s)


def test_output_exit_code_and_errors_are_its_result() -> None:
    ended = run("cat; pwd >&2; echo $WORD; exit 3", b"in ", WORD="out")
    assert (ended.exit_code, ended.output) == (3, "in out\n")
    assert "agentgym-programs-" in ended.errors
    assert ended.why.startswith("it ended with exit code 3: /")
    assert run("kill -TERM $$").why == "it was killed by signal 15"


def test_more_input_than_a_pipe_holds_is_read_or_left() -> None:
    text = b"line\n" * 200_000
    assert run("wc -l", text).output.strip() == "200000"
    assert run("true", text).exit_code == 0


@pytest.mark.parametrize(
    ("command", "kind", "wording"),
    [
        ("sleep 600", "timeout", "came to no end within 0.3 s"),
        ("cat /dev/zero", "program: output", "wrote more than is read"),
        ("cat /dev/zero >&2", "program: output", "64 MB of standard error"),
    ],
)
def test_what_goes_on_for_ever_is_ended(command: str, kind: str, wording: str) -> None:
    timeout_s = 0.3 if kind == "timeout" else None
    with pytest.raises(ProgramError, match=wording) as caught:
        run(command, timeout_s=timeout_s)
    assert caught.value.kind == kind


def test_memory_of_a_program_and_its_children_is_bounded() -> None:
    hold = "import os, time; held = os.urandom(1 << 20) * 60; time.sleep(600)"
    each = f"{sys.executable} -S -c '{hold}' &"
    with pytest.raises(ProgramError, match="held more than 100 MB") as caught:
        run(f"{each} {each} wait", memory_mb=100)
    assert caught.value.kind in ("program: memory",)


def test_children_in_sessions_of_their_own_end_with_it(tmp_path: Path) -> None:
    mark = str(tmp_path)
    command = "setsid sleep 600 & (setsid sh -c 'sleep 600; true' &) ; echo begun"
    began = time.monotonic()
    assert run(command, **{MARK: mark}).output == "begun\n"
    assert time.monotonic() - began < 30  # their copy of its output is not waited for
    assert processes_of(mark, patience_s=5) == []


def test_a_program_can_be_ended_from_another_thread() -> None:
    made = ProgramRun(["sleep", "600"], new_folder(), {})
    made.kill(ProgramError("cut", "the episode is over"))
    with pytest.raises(ProgramError, match="the episode is over"):
        made.wait()


_STARTER = """
from agentgym.programs.process import ProgramRun, new_folder, watcher
print(watcher().folder, flush=True)
words = ["sh", "-c", "setsid sleep 600 & sleep 600"]
ProgramRun(words, new_folder(), {}).wait()
"""


def test_nothing_is_left_after_a_kill_of_who_started_it(tmp_path: Path) -> None:
    mark = str(tmp_path)
    starter = subprocess.Popen(
        [sys.executable, "-c", _STARTER],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, MARK: mark},
    )
    assert starter.stdout is not None
    folder = Path(starter.stdout.readline().strip())
    until = time.monotonic() + 30
    while len(processes_of(mark, patience_s=0)) < 4 and time.monotonic() < until:
        time.sleep(0.05)  # the starter, its guard, and the two that sleep
    starter.send_signal(signal.SIGKILL)
    starter.wait()
    assert processes_of(mark, patience_s=20) == []
    assert not folder.exists()
