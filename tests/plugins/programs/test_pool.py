"""Processes that take several tasks: when they go on, and when they are replaced.

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
from agentgym.plugins.programs.attempt import ProgramPool
from agentgym.programs.process import ProgramRun
from tests.processes import MARK, processes_of

pytestmark = pytest.mark.slow

SCRIPT = """
import json, os, sys, time
for line in sys.stdin:
    said = json.loads(line)["instruction"]
    if said == "leave":
        sys.exit("no such shelf")
    if said == "sleep":
        time.sleep(600)
    if said == "log":
        print("Loading …", flush=True)
    if said == "flood":
        print("x" * (2 << 20), flush=True)
    if said == "grow":
        held = os.urandom(1 << 20) * 130
        time.sleep(600)
    if said == "child":
        os.system("setsid sleep 600 &")
    if said == "refuse":
        print(json.dumps({"error": "no such book"}), flush=True)
    else:
        print("x" * 100_000, file=sys.stderr)
        print(json.dumps({"answer": str(os.getpid())}), flush=True)
    if said == "talk on":
        print("One more thing.", flush=True)
        time.sleep(0.2)
    if said == "leave later":
        sys.exit(3)
"""


class Pool:
    """A pool of that script, and what it answers."""

    def __init__(self, most: int, **variables: str) -> None:
        def start(folder: Path) -> ProgramRun:
            words = [sys.executable, "-S", "-c", SCRIPT]
            return ProgramRun(words, folder, variables, memory_mb=100)

        self.pool = ProgramPool(start, most)

    def answer(self, said: str, timeout_s: float | None = 60.0) -> str:
        task = {"instruction": said}
        return self.pool.ask(self.pool.take(), task, timeout_s)

    def error(self, said: str, timeout_s: float | None = 60.0) -> ProgramError:
        with pytest.raises(ProgramError) as caught:
            self.answer(said, timeout_s)
        return caught.value


def test_a_process_takes_so_many_tasks_and_is_then_replaced(tmp_path: Path) -> None:
    pool = Pool(3, **{MARK: str(tmp_path)})
    had = [pool.answer(f"task {n}") for n in range(7)]
    assert [had.index(each) for each in had] == [0, 0, 0, 3, 3, 3, 6]
    assert len(processes_of(str(tmp_path), 0)) == 1
    pool.pool.close()
    assert processes_of(str(tmp_path), 10) == []


@pytest.mark.parametrize(
    ("said", "kind", "wording"),
    [
        ("leave", "program: exit", "exit code 1: no such shelf"),
        ("sleep", "timeout", "no end within 0.5 s"),
        ("log", "program: line", "'Loading …' is not an answer"),
        ("talk on", "program: line", "write other output to standard error"),
        ("flood", "program: output", "wrote more than is read"),
        ("grow", "program: memory", "held more than 100 MB"),
    ],
)
def test_a_task_that_goes_wrong_replaces_its_process(
    said: str, kind: str, wording: str, tmp_path: Path
) -> None:
    pool = Pool(9, **{MARK: str(tmp_path)})
    before = pool.answer("x")
    timeout_s = 0.5 if said == "sleep" else 60
    error = pool.error(said, timeout_s) if said != "talk on" else None
    if error is None:  # its words may come with the answer or before the next task
        errors = []
        for text in ("talk on", "x"):
            try:
                pool.answer(text)
            except ProgramError as raised:
                errors.append(raised)
        [error] = errors
    assert (error.kind, wording in str(error)) == (kind, True), error
    assert pool.answer("x") != before
    assert len(processes_of(str(tmp_path), 0)) == 1
    pool.pool.close()


def test_a_process_that_ends_between_tasks_is_replaced_and_no_task_is_lost() -> None:
    pool = Pool(9)
    taken = pool.pool.take()
    before = pool.pool.ask(taken, {"instruction": "leave later"}, 60)
    while taken.run.is_alive:
        time.sleep(0.01)
    assert pool.answer("x") != before
    pool.pool.close()


def test_children_that_tasks_leave_end_with_the_process(tmp_path: Path) -> None:
    pool = Pool(2, **{MARK: str(tmp_path)})
    pool.answer("child")
    assert any("sleep" in words for words in processes_of(str(tmp_path), 0.5))
    pool.answer("x")
    assert processes_of(str(tmp_path), 10) == []


_STARTER = """
import sys, time
from agentgym.plugins.programs.attempt import ProgramPool
from agentgym.programs.process import ProgramRun

words = ["sh", "-c", "setsid sleep 600 & read line; echo '{\\"answer\\": \\"\\"}'; cat"]
pool = ProgramPool(lambda folder: ProgramRun(words, folder, {}), 9)
assert pool.ask(pool.take(), {}, 60) == ""
print("waits", flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_no_process_that_waits_outlives_who_started_it(
    tmp_path: Path, number: int
) -> None:
    mark = str(tmp_path)
    starter = subprocess.Popen(
        [sys.executable, "-c", _STARTER],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        env={**os.environ, MARK: mark},
    )
    assert starter.stdout is not None
    assert starter.stdout.readline() == "waits\n"
    assert len(processes_of(mark, 0)) >= 4  # it, its guard, the program, its child
    starter.send_signal(number)
    starter.wait()
    assert processes_of(mark, 20) == []
