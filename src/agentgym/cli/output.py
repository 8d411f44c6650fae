"""Where output goes: results to standard output, everything else beside them."""

import json
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from rich.console import Console


def progress_console(as_json: bool) -> "Console":
    """Return the console that people read; with ``--json`` it is standard error."""
    from rich.console import Console

    return Console(stderr=as_json, highlight=False, markup=False, emoji=False)


def print_json(value: Any) -> None:
    """Print ``value`` as JSON on standard output."""
    typer.echo(json.dumps(value, indent=2, ensure_ascii=False))
