"""Build the typer application, and turn errors into messages and exit codes."""

import errno
import logging
import os
import shlex
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from copy import copy
from functools import partial
from inspect import cleandoc
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any, TypeGuard

import typer
from typer.core import TyperCommand, TyperGroup
from typer.models import CommandInfo

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
    from importlib.metadata import EntryPoint

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
_OF_TASKS = {"scenarios", "tasks"}
_COMPLETION = "_AGENTGYM_COMPLETE"  # set by the shell, to complete a command line


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


class CommandGroup(TyperGroup):
    """Commands; a name that another group has is answered with that group.

    A tasks file is a scenario too: each of these two groups runs the other's commands.
    """

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that the first of ``args`` names."""
        if self.get_command(ctx, args[0]) is None:
            whole: Any = typer.main.get_command(build())
            found = [
                name
                for name, group in whole.commands.items()
                if isinstance(group, TyperGroup) and args[0] in group.commands
            ]
            if self.name in _OF_TASKS and (other := _OF_TASKS.intersection(found)):
                return whole.commands[other.pop()].resolve_command(ctx, args)
            if found:
                named = " or ".join(f"`agentgym {name} {args[0]}`" for name in found)
                raise UsageError(
                    f"`{ctx.command_path}` has no command {args[0]!r}. Did you mean "
                    f"{named}?"
                )
        return super().resolve_command(ctx, args)


class Overview(CommandGroup):
    """All commands; their help is read from their source."""

    def get_help(self, ctx: Any) -> str:
        """Return the text of ``agentgym --help``."""
        return overview().rstrip()


def build(words: Sequence[str] | None = None) -> typer.Typer:
    """Return the application with all commands.

    Typer prepares the options of all commands before it reads the command line. So with
    the ``words`` of a command line, only the command that they begin with is imported;
    the others are names.
    """
    app = typer.Typer(
        name="agentgym",
        cls=Overview,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={
            "help_option_names": ["-h", "--help"],
            "max_content_width": _WIDEST,
        },
    )
    app.callback()(_options)
    named = next((word for word in words or () if not word.startswith("-")), "")
    groups: dict[str, typer.Typer] = {}
    for name, load in _commands(is_ours=named in COMMANDS):
        group, _, member = name.rpartition(" ")
        if words is not None and named != (group or name):
            if not group:
                app.command(name)(_unused)
            continue
        found = load()
        if isinstance(found, typer.Typer):
            groups[name] = copy(found)  # to which commands are added
            groups[name].registered_commands = [
                *map(_said_whole, found.registered_commands)
            ]
            app.add_typer(groups[name], name=name, cls=CommandGroup)
        elif group:
            groups[group].command(member, short_help=_summary(found))(found)
        else:
            text, _, example = cleandoc(found.__doc__ or "").partition(_EXAMPLE)
            example = f"{_EXAMPLE}{' '.join(example.split())}\n\n" * bool(example)
            app.command(name, cls=PanelCommand, help=text, epilog=example + EPILOG)(
                with_settings(found)
            )
    return app


def _said_whole(command: CommandInfo) -> CommandInfo:
    """Return a command of a group whose line in the group's help is not cut."""
    command = copy(command)
    command.short_help = _summary(command.callback)
    return command


def _summary(function: Any) -> str:
    return cleandoc(function.__doc__ or "").partition("\n")[0]


def _commands(*, is_ours: bool) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield each command's name, and a function that imports it.

    If the command line names one of ours (``is_ours``), those of other packages are
    left out. One that cannot be loaded says so when it is called.
    """
    for name, target in COMMANDS.items():
        yield name, partial(resolve_name, target)
    for point in () if is_ours else points(GROUP):
        if point.name not in COMMANDS:
            yield point.name, partial(_loaded, point)


def _loaded(point: "EntryPoint") -> Any:
    try:
        return point.load()
    except Exception as error:  # noqa: BLE001 - another package's code
        return _broken(point.name, point.value, error)


def with_settings(command: Callable[..., Any]) -> Callable[..., Any]:
    """Return a command with the options of its settings; see ``takes``."""
    if not hasattr(command, "takes"):
        return command
    from agentgym.cli.setting_options import with_options

    return with_options(command)


def _unused() -> None:
    """Stands for a command that the command line does not name."""


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
            app = build(None if _COMPLETION in os.environ else words)
            app(args=words, prog_name="agentgym", standalone_mode=True, obj=began)
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
