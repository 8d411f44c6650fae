"""Options that commands share, and where output goes: results to standard output."""

import json
import os
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on stdout.")]
UnsafeLocalExec = Annotated[
    bool,
    typer.Option(
        "--unsafe-local-exec", help="Run model-written code without a sandbox."
    ),
]


def progress_console(as_json: bool) -> "Console":
    """Return the console that people read; with ``--json`` it is standard error.

    It raises :class:`~agentgym.errors.OutputClosed` once nobody reads it any more.
    """
    from rich.console import Console

    from agentgym.errors import OutputClosed

    class Readers(Console):
        def on_broken_pipe(self) -> None:
            raise OutputClosed

    return Readers(stderr=as_json, highlight=False, markup=False, emoji=False)


def discard_output() -> None:
    """Let what is still to be flushed go nowhere: its reader has gone."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, sys.stdout.fileno())
    os.close(nowhere)


def print_json(value: Any) -> None:
    """Print ``value`` as JSON on standard output."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))
