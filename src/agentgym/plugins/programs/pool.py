"""Keep a program's processes running for several tasks, one JSON line per task.

A process reads a task as one line from standard input, attempts it, writes its answer
as one line to standard output, and reads the next task::

    {"id": "line-3", "instruction": "…", "folder": "/…", "variables": {…}}
    {"answer": "…"}

A process has one task at a time. If it writes ``{"error": "…"}``, the attempt has
failed, but the process gets the next task. If it writes any other line or takes too
long, it is killed, and a new process gets the next task.
"""

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree
from typing import Any

from agentgym.core.files import parse_json
from agentgym.errors import ProgramError
from agentgym.programs.process import ProgramRun, is_own_fault, new_folder

SAID_ERROR = "program: error"
"""``ProgramError.kind`` of an error that the program itself has reported."""


@dataclass
class PooledProgram:
    """A running program that attempts several tasks; ``had`` is the number so far."""

    run: ProgramRun
    folder: Path
    had: int = 0

    def close(self) -> None:
        """End the process and its children, and remove its folder."""
        self.run.close()
        rmtree(self.folder, ignore_errors=True)


def _parsed(line: bytes) -> dict[str, str]:
    """Return the ``answer`` or the ``error`` in a line of a program's output."""
    text = line.decode("utf-8", "replace")
    try:
        found = parse_json(text)
    except ValueError:
        found = None
    said = found if isinstance(found, dict) else {}
    for key in ("answer", "error"):
        if isinstance(value := said.get(key), str):
            return {key: value}
    raise ProgramError(
        "program: line",
        f'{text!r:.120} is not an answer to a task, as in {{"answer": "…"}} or '
        '{"error": "…"}: write other output to standard error',
    )


class ProgramPool:
    """Reuses a program's process for up to ``most`` tasks. Thread-safe."""

    def __init__(self, start: Callable[[Path], ProgramRun], most: int) -> None:
        self._start = start
        self._most = most
        self._idle: list[PooledProgram] = []
        self._is_closed = False
        self._lock = threading.Lock()

    def take(self) -> PooledProgram:
        """Return an idle process for one task; start a new one if none is idle."""
        while True:
            with self._lock:
                found = self._idle.pop() if self._idle else None
            if found is None:
                return self._started()
            if found.run.is_alive:
                return found
            found.close()

    def _started(self) -> PooledProgram:
        folder = new_folder()
        try:
            return PooledProgram(self._start(folder), folder)
        except ProgramError:
            rmtree(folder, ignore_errors=True)
            raise

    def ask(
        self, taken: PooledProgram, task: Mapping[str, Any], timeout_s: float | None
    ) -> str:
        """Send a task to a process from :meth:`take`; end it after a wrong reply."""
        goes_on = False
        taken.had += 1
        try:
            said = taken.run.ask(json.dumps(task).encode(), timeout_s, _parsed)
            goes_on = True
        finally:
            with self._lock:
                goes_on = goes_on and taken.had < self._most and not self._is_closed
                if goes_on:
                    self._idle.append(taken)
            if not goes_on:
                taken.close()
        if "error" in said:
            own = is_own_fault(said["error"])
            raise ProgramError(SAID_ERROR, said["error"], is_crash=own)
        return said["answer"]

    def close(self) -> None:
        """End idle processes now, and each busy process at the end of its task."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for each in idle:
            each.close()
