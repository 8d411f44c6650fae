"""ProgramCommand: parse the command that starts an agent in any language."""

import json
import os
import re
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from agentgym.core.agent import COMMAND
from agentgym.errors import ProgramError, UsageError
from agentgym.install import quoted

TASK, TASK_FILE, PROJECT = "{task}", "{task_file}", "{project}"
_TASKS = re.compile(r"\{tasks:(\d+)\}")
_NAMED = re.compile(r"\{task(?:_file)?\}")
_MOST_TASKS = 1_000_000
_ADDRESSES = "127.0.0.1,localhost"


@dataclass(frozen=True)
class ProgramCommand:
    """The command of a program that attempts tasks; no shell interprets it.

    In the command, ``{task}`` becomes the user's request, ``{task_file}`` the path of a
    file with the request, and ``{project}`` the folder in which training was started.
    Without ``{task}`` and ``{task_file}``, the request is the program's standard input.
    A process attempts one task and ends. If the command contains ``{tasks:50}``, a
    process attempts up to 50 tasks; see :attr:`tasks`.

    Attributes:
        words: The program and its arguments.
    """

    words: tuple[str, ...]

    @classmethod
    def parse(cls, text: str, *, option: str = "--command") -> Self:
        """Parse the text of a command, which may begin with ``command:``."""
        text = text.removeprefix(COMMAND)
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise UsageError(f"{option} {text!r} cannot be read: {error}.") from None
        if not words:
            raise UsageError(f'{option} is empty: give one, as in "node agent.js".')
        if problem := _problem_of_tasks(text):
            raise UsageError(f"{option} {text!r}: {problem}")
        return cls(tuple(words))

    def __str__(self) -> str:
        return shlex.join(self.words)

    @property
    def reference(self) -> str:
        """The value of the setting ``agent``: ``command:``, followed by the command."""
        return f"{COMMAND}{self}"

    @property
    def tasks(self) -> int | None:
        """Maximum number of tasks of one process, from ``{tasks:50}``.

        None without it.
        """
        found = _TASKS.search(" ".join(self.words))
        return None if found is None else int(found[1])

    def located(self, folder: Path | None = None) -> Self:
        """Return the command with absolute paths, so that it runs in any folder."""
        project = Path.cwd() if folder is None else folder

        def place(number: int, word: str) -> str:
            word = word.replace(PROJECT, str(project))
            is_path = os.sep in word if number == 0 else not word.startswith("-")
            if is_path and (project / word).is_file():
                return str((project / word).absolute())
            return word

        words = [place(number, word) for number, word in enumerate(self.words)]
        return type(self)(tuple(words))

    def require(self, *, option: str = "--command") -> None:
        """Raise UsageError if the program is not installed."""
        if shutil.which(self.words[0]) is None:
            raise UsageError(
                f"{option} {str(self)!r}: the program {self.words[0]!r} was not found "
                "on this machine. Install it, or write its whole path."
            )

    @property
    def reads_input(self) -> bool:
        """Whether the program gets the request on standard input, not as arguments."""
        text = " ".join(self.words)
        return TASK not in text and TASK_FILE not in text

    @property
    def ending_a_chat(self) -> str:
        """Advice for a program that asks for message after message, with a command."""
        words = "sh", "-c", f"(cat; echo; echo exit) | {self}"
        return (
            "If it waits for the next message of a chat, end the chat with the word "
            f"that it ends at: --command {quoted(shlex.join(words))}"
        )

    def arguments(self, instruction: str, file: Path) -> list[str]:
        """Return the program and its arguments for one task."""
        if self.tasks is not None:
            return [_TASKS.sub(r"\1", word) for word in self.words]
        named = {TASK: instruction, TASK_FILE: str(file)}
        # In one pass, since the request itself may contain {task_file}.
        found = [_NAMED.sub(lambda name: named[name[0]], word) for word in self.words]
        if any("\0" in word for word in found):
            raise ProgramError(
                "program", "The request holds a NUL, which no argument can: use stdin."
            )
        return found


def _problem_of_tasks(text: str) -> str:
    """Return the mistake in a command's use of ``{tasks:50}``, or "" if correct."""
    if "{tasks" not in text:
        return ""
    numbers = [int(number) for number in _TASKS.findall(text)]
    if len(numbers) != 1 or not 1 <= numbers[0] <= _MOST_TASKS:
        return (
            "write {tasks:50} once, with the number of tasks that a process takes, "
            f"from 1 to {_MOST_TASKS:,}."
        )
    if TASK in text or TASK_FILE in text:
        return (
            f"with {{tasks:{numbers[0]}}} each task is a line of standard input: leave "
            f"{TASK} and {TASK_FILE} out."
        )
    return ""


def write_task(folder: Path, task: Mapping[str, Any]) -> Path:
    """Write ``task.json`` and ``task.txt``, and return the path of the latter."""
    (folder / "task.json").write_text(json.dumps(task), encoding="utf-8")
    file = folder / "task.txt"
    file.write_text(task["instruction"], encoding="utf-8")
    return file


def base_variables() -> dict[str, str]:
    """Return all programs' variables: no proxies to this machine, the project."""
    found = {}
    for name in ("NO_PROXY", "no_proxy"):
        known = os.environ.get(name, "")
        found[name] = f"{known},{_ADDRESSES}" if known else _ADDRESSES
    project = os.getcwd()
    paths = [project, os.environ.get("PYTHONPATH", "")]
    found["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    found["AGENTGYM_PROJECT"] = project
    return found
