"""The table of commands, and the text of ``agentgym --help``.

Importing typer takes longer than all the rest of ``--help``. So the text is made of the
commands' docstrings, which are read from the source files.
"""

import os
from collections.abc import Iterator
from importlib.util import find_spec

from agentgym.plugins import REGISTERED, points

GROUP = "agentgym.commands"
COMMANDS = {
    "train": "agentgym.cli.train:train",
    "eval": "agentgym.cli.evaluate:evaluate",
    "inspect": "agentgym.cli.inspect:inspect",
    "serve": "agentgym.cli.saved:serve",
    "export": "agentgym.cli.saved:export",
    "scenarios": "agentgym.cli.scenarios:app",
    "tasks": "agentgym.cli.tasks:app",
    "runs": "agentgym.cli.saved:runs",
    "agents": "agentgym.cli.saved:agents",
    "engine": "agentgym.cli.engines:app",
    **REGISTERED[GROUP],
}
"""Functions, and typer applications for groups of commands, by the command's name.

A function whose name has two words, ``tasks from-logs``, is added to that group."""
_HELP = """\
Usage: agentgym [OPTIONS] COMMAND [ARGS]...

  Train existing agents by reinforcement learning to call their tools reliably.

Commands:
{}
Options:
  --version             Print the version.
  --log-level LEVEL     With any command: write the log to standard error, from
                        debug, info, warning or error on.
  --debug               With any command: show the log, and where an error was
                        raised.
  --install-completion  Install completion for the current shell.
  --show-completion     Show completion for the current shell, to copy it.
  -h, --help            With any command: show its options, and exit.

Example: agentgym train --agent my_module:my_agent
"""


def overview() -> str:
    """Return the text of ``agentgym --help``."""
    targets = dict(_targets())
    width = max(map(len, targets))
    lines = [f"  {name:{width}}  {_summary(targets[name])}\n" for name in targets]
    return _HELP.format("".join(lines))


def _targets() -> Iterator[tuple[str, str]]:
    """Yield the commands, with ``module:name`` of each: ours, then other packages'."""
    theirs = {point.name: point.value for point in points(GROUP)}
    for name, target in {**theirs, **COMMANDS}.items():
        if " " not in name:
            yield name, target


def _summary(target: str) -> str:
    """Return the first line of a command's help; "" if its source does not show it."""
    module, _, name = target.partition(":")
    package, *parts = module.split(".")
    spec = find_spec(package)  # it imports nothing
    for folder in spec.submodule_search_locations or () if spec is not None else ():
        path = os.path.join(folder, *parts)
        for file in (f"{path}.py", os.path.join(path, "__init__.py")):
            if os.path.isfile(file):
                with open(file, encoding="utf-8") as opened:
                    return _first_line(opened.read(), name)
    return ""


def _first_line(source: str, name: str) -> str:
    for begin, mark, end in (
        (f"\ndef {name}(", '\n    """', "\n"),
        (f"\n{name} = typer.Typer(", 'help="', '"'),
    ):
        if begin in source:
            found = source.partition(begin)[2].partition(mark)[2]
            return found.partition(end)[0].removesuffix('"""')
    return ""
