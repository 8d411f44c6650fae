"""Notice that a run's tasks, or the code of its agent, changed before a resume."""

import ast
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from agentgym.core.agent import is_command
from agentgym.core.config import TrainingConfig
from agentgym.core.files import digest
from agentgym.core.import_hints import imported_by
from agentgym.core.task import TaskSource
from agentgym.errors import UsageError
from agentgym.integrations.projects import prepare_project
from agentgym.programs.program import ProgramCommand
from agentgym.scenarios.packs import is_path, is_tasks_file
from agentgym.scenarios.tool_tasks.lines import numbered_lines
from agentgym.scenarios.tool_tasks.task_file import answers_path


def input_digests(config: TrainingConfig) -> dict[str, str]:
    """Return a digest of each input of a run, for ``run.json``.

    The inputs are ``tasks`` (the lines of a tasks file), its ``answers`` and ``check``,
    ``agent`` (the source of the agent or of the tools, with the local modules that it
    imports), and ``scenario`` (the source of a scenario in a folder).
    """
    found: dict[str, Iterable[str | bytes]] = {}
    agents, folder = [config.agent.reference or ""], ""
    if is_tasks_file(config.scenario):
        source = TaskSource.parse(config.scenario)
        path, folder = Path(source.path), source.folder
        found["tasks"] = [line.strip() for _, line in numbered_lines(path)]
        found["answers"] = _contents([answers_path(path)])
        checks = [source.check or "", source.check_command or ""]
        found["check"] = _contents(_files(checks, folder))
        agents += source.tools
    elif is_path(config.scenario):
        place = Path(config.scenario)
        found["scenario"] = _contents(
            sorted(place.rglob("*.py")) if place.is_dir() else [place]
        )
    found["agent"] = _contents(_files(agents, folder))
    return {name: digest(parts) for name, parts in found.items() if parts}


def require_same_tasks(
    before: Mapping[str, str], config: TrainingConfig, run: Path
) -> list[str]:
    """Compare the inputs of a resumed run with their digests ``before``."""
    try:
        now = input_digests(config)
    except UsageError as error:
        error.add_note("Put it back to resume, or begin a new run: leave out --resume.")
        raise
    changed = [name for name in before if now.get(name, before[name]) != before[name]]
    if "tasks" in changed:
        path = TaskSource.parse(config.scenario).path
        raise UsageError(
            f"{path} is not as it was when {run} began. Its tasks would be divided "
            "differently, so that held-out tasks could be trained on. Put the file "
            "back as it was, or begin a new run with it: leave out --resume."
        )
    return [
        f"The {name} changed since {run} began: its first measurement is of the {name} "
        "as it was."
        for name in changed
    ]


def _files(references: Iterable[str], folder: str) -> list[Path]:
    """Return the local source files of ``module:name`` references and commands."""
    found: dict[Path, None] = {}
    for reference in filter(None, references):
        module, colon, _ = reference.removeprefix("@").partition(":")
        if is_command(reference) or not colon:
            words = ProgramCommand.parse(reference).located().words[1:]
            found |= dict.fromkeys(path for path in map(Path, words) if path.is_file())
        else:
            place = Path(prepare_project(reference, folder) or Path.cwd())
            found |= dict.fromkeys(_sources(module, place))
    return list(found)


def _sources(module: str, folder: Path) -> list[Path]:
    """Return the files of a module's package and of those in ``folder`` it imports."""
    waiting, seen, found = [module.partition(".")[0]], set[str](), list[Path]()
    while waiting:
        top = waiting.pop()
        if top in seen:
            continue
        seen.add(top)
        file = folder / f"{top}.py"
        files = [file] if file.is_file() else sorted((folder / top).rglob("*.py"))
        found += files
        for path in files:
            with suppress(OSError, ValueError, SyntaxError):  # the import raises them
                waiting += imported_by(ast.parse(path.read_bytes()))
    return sorted(found)


def _contents(paths: Iterable[Path]) -> list[bytes]:
    return [path.read_bytes() for path in paths if path.is_file()]
