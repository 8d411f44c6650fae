"""Write results to standard output, and keep messages and logs apart from them."""

import logging
import os
import re
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, redirect_stdout
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

from agentgym.errors import UsageError
from agentgym.security.redaction import LogFilter, Redactor

if TYPE_CHECKING:
    from rich.console import Console

_RESULTS: ContextVar[int] = ContextVar("agentgym_results", default=1)
"""File descriptor for results: 1, or a copy of it inside :func:`only_results`."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_SERVERS = "agentgym.rollout.gateway"
_REMARKS = (
    "agentgym.core.settings",
    "agentgym.integrations.agent_import",
    "agentgym.rollout.absolute_paths",
    "agentgym.scenarios.tool_tasks.scenario",
)
"""Names of the loggers whose warnings are always shown."""
_OPTION = "--log-level"
_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


@contextmanager
def only_results() -> Iterator[None]:
    """Inside the block, only :func:`print_result` writes to standard output.

    All other output goes to standard error. With ``--json``, standard output may
    contain only the JSON; output of user code, libraries and child processes would make
    it invalid.
    """
    sys.stdout.flush()
    stdout = os.dup(1)
    os.dup2(2, 1)
    token = _RESULTS.set(stdout)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        _RESULTS.reset(token)
        os.dup2(stdout, 1)
        os.close(stdout)


def progress_console(as_json: bool = False) -> "Console":
    """Return a console for messages, on stdout; with ``as_json``, on stderr.

    Printing raises OutputClosed if the reader of the output has closed the pipe.
    """
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    from agentgym.errors import OutputClosed

    class Readers(Console):
        def on_broken_pipe(self) -> None:
            raise OutputClosed

        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterable[Segment]:
            for segment in super().render(renderable, options):
                text, style, control = segment
                yield segment if control else Segment(visible(text), style)

    return Readers(stderr=as_json, highlight=False, markup=False, emoji=False)


def visible(text: str) -> str:
    """Replace control characters, which a terminal would execute, in a text."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


@contextmanager
def failures_shown() -> Iterator[None]:
    """Inside the block, log failures of a running server to standard error.

    The server's responses to clients refer to this log and do not contain the cause.
    """
    root, servers = logging.getLogger(), logging.getLogger(_SERVERS)
    if not all(isinstance(each, logging.NullHandler) for each in root.handlers):
        yield  # `show_log` already shows them
        return
    handler = logging.StreamHandler()
    handler.setLevel(logging.ERROR)
    servers.addHandler(handler)
    try:
        yield
    finally:
        servers.removeHandler(handler)


def discard_output() -> None:
    """Discard output that is not yet written, because its reader closed the pipe."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def print_json(value: Any) -> None:
    """Print a value as JSON. It may contain pydantic models; NaN becomes null."""
    import orjson

    options = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS
    print_result(orjson.dumps(value, _plain, options).decode())


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value.model_dump(mode="json")


def print_result(text: str) -> None:
    """Write a result to standard output, also inside :func:`only_results`.

    Secrets and control characters are replaced.
    """
    sys.stdout.flush()
    text = visible(Redactor.of_environment().written(text))
    with open(_RESULTS.get(), "w", encoding="utf-8", closefd=False) as file:
        file.write(text)


def announce_trial(agent: str | None, as_json: bool) -> None:
    """Write a line before the slow trial of a user's agent; none with ``as_json``."""
    if agent is not None and not as_json:
        name = agent.removeprefix("command:")
        print_result(f"Importing {name}, and trying it with a scripted model …\n")


def require_place(path: Path) -> None:
    """Raise UsageError if a file cannot be written at this path; do not write it."""
    if path.is_dir():
        problem = "it is a folder"
    elif not path.parent.is_dir():
        problem = f"the folder {path.parent} does not exist"
    elif not os.access(path.parent, os.W_OK | os.X_OK):
        problem = f"the folder {path.parent} is not writable"
    else:
        return
    raise UsageError(f"{path} cannot be written: {problem}. Choose another place.")


def for_terminal(text: str) -> str:
    """Break the lines of a message between words if standard error is a terminal.

    A command, in backticks or in an indented line, is not broken: it is to be copied.
    """
    if not sys.stderr.isatty():
        return text
    from shutil import get_terminal_size
    from textwrap import TextWrapper

    whole = re.sub("`[^`]+`", lambda found: found[0].replace(" ", "\xa0"), text)
    lines = TextWrapper(
        get_terminal_size().columns, break_long_words=False, break_on_hyphens=False
    )
    found = (
        line if line[:1].isspace() else lines.fill(line) for line in whole.splitlines()
    )
    return "\n".join(found).replace("\xa0", " ")


def split_log_level(words: list[str]) -> tuple[list[str], int | None]:
    """Remove ``--log-level LEVEL`` from a command line; return the rest and the level.

    The option may stand anywhere. The level is a number of :mod:`logging`; None if the
    option was not given.

    Raises:
        UsageError: The level is missing or unknown.
    """
    left, level = [], None
    rest = iter(words)
    for word in rest:
        name, equals, value = word.partition("=")
        if name != _OPTION:
            left.append(word)
            continue
        value = value if equals else next(rest, "")
        if value.lower() not in _LEVELS:
            raise UsageError(
                f"{_OPTION} {value}".rstrip() + f": choose one of {', '.join(_LEVELS)}."
            )
        level = _LEVELS[value.lower()]
    return left, level


class _Remarks(logging.Handler):
    """Writes each remark once to standard error."""

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self._written: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if text not in self._written:
            self._written.add(text)
            sys.stderr.write(f"{text}\n")


def show_log(level: int | None) -> None:
    """Write log records of at least ``level`` to standard error.

    If ``level`` is None, write no records except remarks on the user's settings and
    agent, and hide Python warnings of libraries.
    """
    if level is None:
        logging.basicConfig(handlers=[logging.NullHandler()])
        remarks = _Remarks(logging.WARNING)
        for name in _REMARKS:
            logging.getLogger(name).handlers[:] = [remarks]
        warnings.simplefilter("ignore")
        return
    logging.basicConfig(level=level, format=_FORMAT)
    for handler in logging.getLogger().handlers:
        handler.addFilter(LogFilter())
