"""Processes of a program that take several tasks, a line of JSON each.

A process reads a line with a task from standard input, attempts it, writes a line with
its answer to standard output, and reads the next::

    {"id": "line-3", "instruction": "…", "folder": "/…", "variables": {…}}
    {"answer": "…"}

``{"error": "…"}`` says instead that this attempt failed, and that the process goes on.
It has one task at a time. Whatever else happens ends it, and another is started.
"""

import json
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from shutil import rmtree
from typing import Any

from agentgym.core.files import parse_json
from agentgym.errors import ProgramError
from agentgym.programs.process import ProgramRun, new_folder

SAID_ERROR = "program: error"
"""The kind of error of an attempt that the program itself says has failed."""


class PooledProgram:
    """One process, its folder, and the number of tasks that it has had.

    Args:
        run: The process.
        folder: Where it was started; it is removed with it.
    """

    def __init__(self, run: ProgramRun, folder: Path) -> None:
        self.run = run
        self.had = 0
        self._folder = folder

    def ask(self, task: Mapping[str, Any], timeout_s: float | None) -> str:
        """Return the answer to a task.

        Raises:
            ProgramError: There is none; of the kind ``SAID_ERROR`` if the process says
                so itself.
        """
        self.had += 1
        line = self.run.ask(json.dumps(task).encode(), timeout_s)
        text = line.decode("utf-8", "replace")
        try:
            found = parse_json(text)
        except ValueError:
            found = None
        said = found if isinstance(found, dict) else {}
        if isinstance(answer := said.get("answer"), str):
            return answer
        if isinstance(error := said.get("error"), str):
            raise ProgramError(SAID_ERROR, error)
        raise ProgramError(
            "program: line",
            f'{text!r:.120} is not an answer to a task, as in {{"answer": "…"}} or '
            '{"error": "…"}: write other output to standard error',
        )

    def close(self) -> None:
        """End it and its children."""
        self.run.close()
        rmtree(self._folder, ignore_errors=True)


class ProgramPool:
    """Keeps the processes of a program from one task to the next.

    Its methods may be called in any thread.

    Args:
        start: Starts a process in a folder.
        most: Tasks of one process, after which it is replaced.
    """

    def __init__(self, start: Callable[[Path], ProgramRun], most: int) -> None:
        self._start = start
        self._most = most
        self._idle: list[PooledProgram] = []
        self._is_closed = False
        self._lock = threading.Lock()

    def take(self) -> PooledProgram:
        """Return a process for one task: one that waits, or a new one.

        Raises:
            ProgramError: It cannot be started.
        """
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
        """Return a process's answer to a task; it waits for the next one, or is ended.

        Raises:
            ProgramError: There is none, and why.
        """
        goes_on = False
        try:
            answer = taken.ask(task, timeout_s)
            goes_on = True
        except ProgramError as error:
            goes_on = error.kind == SAID_ERROR
            raise
        finally:
            with self._lock:
                goes_on = goes_on and taken.had < self._most and not self._is_closed
                if goes_on:
                    self._idle.append(taken)
            if not goes_on:
                taken.close()
        return answer

    def close(self) -> None:
        """End the processes that wait; the others end with their tasks."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for each in idle:
            each.close()
