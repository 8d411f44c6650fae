"""Entry point of ``agentgym``: ``list``, ``--version``, ``--help`` without typer.

Importing typer and pydantic takes a quarter of a second. The most frequent commands
skip this import: they directly call the functions that the typer commands call.
"""

import io
import os
import sys
import time
from collections.abc import Sequence
from contextlib import suppress

from agentgym.core.collector import collect_rarely
from agentgym.errors import ConfigError
from agentgym.security.env_file import load_env_file
from agentgym.version import __version__


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command, by default that of ``sys.argv``; return its exit code.

    The code is 0, 1 for a failure, 2 for wrong usage, or 130 if interrupted.
    """
    began = time.monotonic()
    words = list(sys.argv[1:] if arguments is None else arguments)
    _open_closed_streams()
    _write_any_text()
    try:
        load_env_file()
    except FileNotFoundError:
        sys.stderr.write("Error: the current folder was deleted; change to another.\n")
        return ConfigError.exit_code
    except (OSError, ValueError) as error:
        sys.stderr.write(f"Error: Cannot read {os.path.abspath('.env')}: {error}.\n")
        return ConfigError.exit_code
    answer = _quick_answer(words)
    if answer is not None:
        return _write(answer)
    if arguments is None:
        collect_rarely()
    from agentgym.cli.app import run

    return run(words, began, owns_process=arguments is None)


def _open_closed_streams() -> None:
    """Connect standard streams that the shell has closed (``>&-``) to ``/dev/null``.

    Otherwise the next opened file would get the descriptor of a closed stream.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            nowhere = open(os.devnull, mode, encoding="utf-8")  # noqa: SIM115
            setattr(sys, name, nowhere)


def _write_any_text() -> None:
    """Replace characters that the terminal's encoding lacks, instead of failing."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")


def _quick_answer(words: list[str]) -> str | None:
    """Return the output of a frequent command; None if typer must run the command."""
    if words == ["--version"]:
        return f"agentgym {__version__}\n"
    if words in (["--help"], ["-h"]):
        from agentgym.cli.commands import overview

        return overview()
    if words[1:] in (["list"], ["list", "--json"]):
        from agentgym.cli.listing import LISTS
        from agentgym.cli.output import visible

        with suppress(Exception):  # the typer command fails again and explains why
            return visible(LISTS[words[0]](as_json="--json" in words))
    return None


def _write(text: str) -> int:
    """Write to standard output; return 0, or 1 if the pipe's reader has closed it."""
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        from agentgym.cli.output import discard_output

        discard_output()
        return 1
    return 0
