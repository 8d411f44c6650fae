"""Build the typer application, and turn errors into messages and exit codes."""

import errno
import logging
import os
import shlex
import sys
import traceback
from collections.abc import Callable
from contextlib import nullcontext
from copy import copy
from inspect import cleandoc
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, TypeGuard

import typer
from typer.core import TyperCommand, TyperGroup

from agentgym.cli.commands import COMMANDS, GROUP, overview
from agentgym.cli.interrupts import INTERRUPTED, Interrupts
from agentgym.cli.options import EPILOG, flag, option
from agentgym.cli.output import (
    discard_output,
    for_terminal,
    only_results,
    show_log,
    split_log_level,
    visible,
)
from agentgym.core.panels import ORDER
from agentgym.errors import (
    AgentGymError,
    Interrupted,
    NextCommand,
    OutputClosed,
    UsageError,
)
from agentgym.plugins import points
from agentgym.security.audit import AuditLog, audited, default_log
from agentgym.security.redaction import redacted, redacted_output
from agentgym.version import __version__

if TYPE_CHECKING:
    pass

_OTHER = "Options"
_USUAL = "Usual options"
_MANY = 20
"""A command with more options shows the usual ones first."""
_USUAL_NAMES = (
    *("trained", "agent", "framework", "tasks", "tasks_file", "model", "time"),
    *("episodes", "count", "samples", "tool_names", "warm_start", "gpu", "resume"),
    *("dry_run", "compare", "fail_under", "save"),
)
"""In the order in which help shows them."""
_EXAMPLE = "Example: "
_WIDEST = 120  # most columns of help texts
_TYPER: dict[str, Any] = {
    "rich_markup_mode": None,
    "pretty_exceptions_enable": False,
    "context_settings": {
        "help_option_names": ["-h", "--help"],
        "max_content_width": _WIDEST,
    },
}


class PanelCommand(TyperCommand):
    """A command whose ``--help`` groups the options under headings (panels).

    It replaces typer's own panels, which need the slow import of rich.
    """

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Parse the words; an unknown option that is a setting is explained."""
        try:
            return super().parse_args(ctx, args)
        except Exception as error:
            unknown = str(getattr(error, "option_name", "") or "")
            if unknown and any(param.name == "assigned" for param in self.params):
                from agentgym.cli.setting_options import setting_named

                name = setting_named(unknown)
                dashed = f"--{(name or '').replace('.', '-').replace('_', '-')}"
                known = [option for param in self.params for option in param.opts]
                if dashed in known and unknown not in known:
                    raise UsageError(
                        f"No such option: {unknown}. Did you mean {dashed}?"
                    ) from None
                if name and unknown not in known:
                    raise UsageError(
                        f"{unknown} is a setting without an option: --set {name}=VALUE."
                    ) from None
            raise

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the arguments and options to the help text, grouped by panel."""
        has_many = len(self.params) > _MANY
        panels: dict[str, list[tuple[str, str]]] = {"Arguments": [], _USUAL: []}
        panels |= {panel: [] for panel in ORDER}
        for param in sorted(self.get_params(ctx), key=_usual_place):
            if (record := param.get_help_record(ctx)) is not None:
                panel = getattr(param, "rich_help_panel", None) or _OTHER
                if param.param_type_name == "argument":
                    panel = "Arguments"
                elif has_many and param.name in _USUAL_NAMES:
                    panel = _USUAL
                panels.setdefault(panel, []).append(record)
        panels[_OTHER] = panels.pop(_OTHER, [])  # --help and the like come last
        for panel, records in panels.items():
            if records:
                with formatter.section(panel):
                    formatter.write_dl(records)


def _usual_place(param: Any) -> int:
    """Return a key that sorts the usual options first, and leaves others in place."""
    is_usual = param.name in _USUAL_NAMES
    return _USUAL_NAMES.index(param.name) if is_usual else len(_USUAL_NAMES)


class Commands(TyperGroup):
    """All commands; each is imported when it is named, their help is not imported.

    Typer prepares the options of every command that it knows, so it gets only the one
    that the command line names.
    """

    def __init__(self, **attributes: Any) -> None:
        super().__init__(**attributes)
        # For suggestions; the commands themselves are found by :meth:`get_command`.
        names: dict[str, Any] = {name: None for name in COMMANDS if " " not in name}
        self.commands = names

    def get_help(self, ctx: Any) -> str:
        """Return the text of ``agentgym --help``."""
        return overview().rstrip()

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of all commands, also those of other packages."""
        return [*dict.fromkeys([*self.commands, *(p.name for p in points(GROUP))])]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Import a command; None if there is none with this name.

        One of another package that cannot be loaded says so when it is called.
        """
        if cmd_name in self.commands:
            return _made(cmd_name, resolve_name(COMMANDS[cmd_name]))
        for point in points(GROUP):
            if point.name == cmd_name:
                try:
                    return _made(cmd_name, point.load())
                except Exception as error:  # noqa: BLE001 - another package's code
                    return _made(cmd_name, _broken(point.name, point.value, error))
        return None


def build() -> typer.Typer:
    """Return the application with all commands."""
    app = typer.Typer(name="agentgym", cls=Commands, no_args_is_help=True, **_TYPER)
    app.callback()(_options)
    return app


def _made(name: str, found: Any) -> Any:
    """Return the command or group of commands that a function or an app defines."""
    if isinstance(found, typer.Typer):
        app = copy(found)  # to which commands are added
        app.registered_commands = [*map(copy, found.registered_commands)]
        for member, target in COMMANDS.items():
            if member.startswith(f"{name} "):
                app.command(member.partition(" ")[2])(resolve_name(target))
        for command in app.registered_commands:  # whose help typer would cut
            command.short_help = cleandoc(command.callback.__doc__ or "").split("\n")[0]
        app.rich_markup_mode = None
        return typer.main.get_group(app)
    text, _, example = cleandoc(found.__doc__ or "").partition(_EXAMPLE)
    example = f"{_EXAMPLE}{' '.join(example.split())}\n\n" * bool(example)
    if hasattr(found, "takes"):
        from agentgym.cli.setting_options import with_options

        found = with_options(found)
    app = typer.Typer(add_completion=False, **_TYPER)
    app.command(name, cls=PanelCommand, help=text, epilog=example + EPILOG)(found)
    return typer.main.get_command(app)


def _broken(name: str, target: str, error: Exception) -> Callable[[], None]:
    said = f"The command {name!r} cannot be loaded from {target}: {error}."

    def refuse() -> None:
        raise UsageError(said)

    refuse.__doc__ = said
    return refuse


def run(words: list[str], began: float, *, owns_process: bool = False) -> int:
    """Run one command line, and return its exit code.

    An :class:`AgentGymError` is printed as one paragraph on standard error. If
    ``owns_process`` is true, Ctrl-C ends this process within five seconds, even if a
    thread hangs.

    Args:
        words: The command line without the program's name.
        began: The command's start in ``time.monotonic()``.
        owns_process: Whether this process may be killed after Ctrl-C.
    """
    debug = "--debug" in words
    words = [word for word in words if word != "--debug"]
    try:
        words, level = split_log_level(words)
    except UsageError as error:
        sys.stderr.write(f"Error: {error}\n")
        return error.exit_code
    if level is None and debug:
        level = logging.INFO
    show_log(level)
    with (
        redacted_output(),
        audited(AuditLog(default_log())),
        Interrupts(hard=owns_process) as interrupts,
    ):
        return interrupts.exit_code(_run(words, began, debug=debug))


def _run(words: list[str], began: float, *, debug: bool) -> int:
    as_json = "--json" in words and not {"--help", "-h"} & set(words)
    try:
        with only_results() if as_json else nullcontext():
            build()(args=words, prog_name="agentgym", standalone_mode=True, obj=began)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(bool(end.code))
        if code == INTERRUPTED:  # a KeyboardInterrupt, converted by typer
            sys.stderr.write("Interrupted.\n")
        return code
    except OutputClosed as closed:
        discard_output()
        return closed.exit_code
    except Exception as error:  # noqa: BLE001 - the last place to explain it
        if debug:
            traceback.print_exc()
        sys.stderr.write(for_terminal(explain(error)) + "\n")
        if isinstance(error, UsageError) and error.options is not None:
            if not isinstance(error, NextCommand):
                sys.stderr.write("Try:\n" if error.options else "Then try again:\n")
            command = shlex.join(["agentgym", *words, *error.options])
            sys.stderr.write(f"    {redacted(command)}\n")
        if isinstance(error, AgentGymError):
            return error.exit_code
        return UsageError.exit_code if _is_long_name(error) else 1
    return 0


def explain(error: Exception) -> str:
    """Return one paragraph about ``error``: the problem, and how to solve it.

    The text includes the error's notes (PEP 678), and no secrets.
    """
    message = " ".join([_problem(error), *getattr(error, "__notes__", [])])
    return visible(redacted(message))


def _problem(error: Exception) -> str:
    if isinstance(error, Interrupted | NextCommand):
        return str(error)
    if isinstance(error, AgentGymError):
        return f"Error: {error}"
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
        return (
            "Error: the disk is full. Free some space, or choose another disk with "
            "--output."
        )
    if _is_long_name(error):
        name = f"{os.path.basename(error.filename)[:40]}…"
        return f"Error: the name {name!r} is longer than a file's may be."
    return (
        f"Error: {type(error).__name__}: {error}. This is not an error that AgentGym "
        "knows; run the same command again with --debug to see where it happened."
    )


def _is_long_name(error: Exception) -> TypeGuard[OSError]:
    """Return whether an error says that a file name is too long."""
    return isinstance(error, OSError) and error.errno == errno.ENAMETOOLONG


def _options(
    version: bool = flag("Print the version.", "--version"),
    log_level: str = option(
        "With any command: write the log to standard error.",
        default="",
        metavar="debug|info|warning|error",
    ),
    debug: bool = flag(
        "With any command: show the log, and where an error was raised.", "--debug"
    ),
) -> None:
    # --log-level and --debug may be anywhere, so `run` removes them before typer parses
    # the words. They are declared only for --help.
    if version:
        typer.echo(f"agentgym {__version__}")
        raise typer.Exit
