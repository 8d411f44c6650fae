"""Where output goes: results to standard output, the rest where people read it."""

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
"""The descriptor that results are written to."""
_BEGAN: ContextVar[float | None] = ContextVar("agentgym_began", default=None)
"""When the command began, by ``time.monotonic()``."""
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_SERVERS = "agentgym.rollout.gateway"
"""The package whose loggers report a server's failures."""
_OPTION = "--log-level"
_LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40}
_FORMAT = "%(asctime)s %(levelname)s %(name)s: %(message)s"


@contextmanager
def counted_from(began: float) -> Iterator[None]:
    """Let :func:`began` return when the command began."""
    token = _BEGAN.set(began)
    try:
        yield
    finally:
        _BEGAN.reset(token)


def began() -> float | None:
    """Return when the command began, by ``time.monotonic()``; None outside of one."""
    return _BEGAN.get()


@contextmanager
def only_results() -> Iterator[None]:
    """Keep standard output for :func:`print_result`, as ``--json`` promises.

    Other writers (the user's own code, a library or a child process) are redirected to
    standard error.
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
    """Return the console that people read; with ``--json`` it is standard error.

    It raises :class:`~agentgym.errors.OutputClosed` once the reader has closed the
    pipe.
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
    """Return a text whose control characters a terminal shows and does not obey.

    Prompts, tool calls and records of others may contain some, to falsify the display.
    """
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


@contextmanager
def failures_shown() -> Iterator[None]:
    """Log the failures of a running server to standard error.

    The client is only referred to the server's log.
    """
    root, servers = logging.getLogger(), logging.getLogger(_SERVERS)
    if not all(isinstance(each, logging.NullHandler) for each in root.handlers):
        yield  # they are shown already
        return
    handler = logging.StreamHandler()
    handler.setLevel(logging.ERROR)
    servers.addHandler(handler)
    try:
        yield
    finally:
        servers.removeHandler(handler)


def discard_output() -> None:
    """Discard the output that is still to be flushed: its reader has gone."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def print_json(value: Any) -> None:
    """Print ``value`` as JSON, models in it too; NaN, which JSON has not, is null."""
    import orjson

    options = orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS
    print_result(orjson.dumps(value, _plain, options).decode())


def _plain(value: Any) -> Any:
    return str(value) if isinstance(value, Path) else value.model_dump(mode="json")


def print_result(text: str) -> None:
    """Write ``text`` to standard output, also while only results go there."""
    sys.stdout.flush()
    text = visible(Redactor.of_environment().written(text))
    with open(_RESULTS.get(), "w", encoding="utf-8", closefd=False) as file:
        file.write(text)


def split_log_level(words: list[str]) -> tuple[list[str], int | None]:
    """Take ``--log-level LEVEL`` out of a command line, wherever it stands.

    Returns:
        The other words, and the level; None if none was given.

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


def show_log(level: int | None) -> None:
    """Write the log from a level on to standard error; with None nothing of it.

    Libraries' warnings are then not shown either: they are for their developers.
    """
    if level is None:
        logging.basicConfig(handlers=[logging.NullHandler()])
        warnings.simplefilter("ignore")
        return
    logging.basicConfig(level=level, format=_FORMAT)
    for handler in logging.getLogger().handlers:
        handler.addFilter(LogFilter())
