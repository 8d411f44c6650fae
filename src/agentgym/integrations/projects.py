"""Find agents in a project's files: LangGraph's langgraph.json, CrewAI's crews.

No code of a project runs until one of its agents is used. Then its local dependencies
become importable and its ``env`` variables are set, as the frameworks' commands do.
"""

import json
import os
import re
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from agentgym.core.import_hints import reference_hint
from agentgym.core.registry import dotted_name, package_root
from agentgym.errors import ConfigError, NotFoundError, UsageError
from agentgym.security.env_file import is_left_out
from agentgym.security.redaction import VARIABLE, looks_secret

LANGGRAPH_FILE = "langgraph.json"
PYPROJECT_FILE = "pyproject.toml"
_CREW = re.compile(r"^@(?:\w+\.)*CrewBase\b.*\n(?:@.*\n)*class +(\w+)", re.MULTILINE)
"""The decorator of a crew's class, and the class."""
_MOST_FILES = 2000  # in which crew classes are searched
_SKIPPED = {"node_modules", "site-packages", "__pycache__", "tests", "build", "dist"}
_OURS = "AGENTGYM_"
"""Prefix of AgentGym's own variables, which a project's ``env`` may not set."""


@dataclass(frozen=True)
class ProjectAgent:
    """An agent that a project's files define.

    Attributes:
        name: The agent's name for ``--agent``.
        reference: ``module:name`` to import.
        source: Name of the project file in which the agent was found.
        roots: Folders to add to the import path. The first, from which the agent is
            imported, goes before installed packages; the others go after them.
        env: Environment variables, or the path of the file that contains them.
    """

    name: str
    reference: str
    framework: str
    source: str
    roots: tuple[Path, ...]
    env: Path | Mapping[str, str] = field(default_factory=dict)

    def prepare(self) -> None:
        """Extend the import path, and set variables of ``env`` that are not set yet."""
        own, *others = map(str, self.roots)
        sys.path[:] = [own, *(place for place in sys.path if place != own)]
        sys.path += [place for place in others if place not in sys.path]
        secret = [name for name in os.environ.get(VARIABLE, "").split(",") if name]
        for name, value in _variables(self.env).items():
            if not (name.upper().startswith(_OURS) or is_left_out(name)):
                os.environ.setdefault(name, value)
                secret += [name] if looks_secret(name, value) else []
        if secret:
            os.environ[VARIABLE] = ",".join(dict.fromkeys(secret))


def project_agents(folder: str | Path = "") -> list[ProjectAgent]:
    """Return the agents that a folder's langgraph.json and CrewAI classes define.

    An empty ``folder`` is the working folder.
    """
    project = Path(folder or Path.cwd())
    return [*_graphs(project), *_crews(project)]


def named_in_project(reference: str, folder: str | Path = "") -> str:
    """Return the ``module:name`` of an agent, given its name in the project's files.

    ``file.py:name``, as in langgraph.json, is converted; a ``module:name`` is returned
    unchanged.
    """
    if ":" in reference:
        return _by_path(reference, Path(folder or Path.cwd()).resolve())
    found = {agent.name: agent for agent in project_agents(folder)}
    if reference in found:
        return found[reference].reference
    hint = "Write module:name of an agent, or a name in langgraph.json."
    if meant := reference_hint(reference, folder):
        raise UsageError(f"{reference!r} is not module:name.{meant} {hint}")
    raise NotFoundError("agent of this project", reference, found, hint)


def _by_path(reference: str, project: Path) -> str:
    """Convert ``file.py:name`` to ``module:name`` if the file is in ``project``."""
    path, _, name = reference.rpartition(":")
    file = (project / path).resolve()
    if not (path.endswith(".py") and file.is_file() and file.is_relative_to(project)):
        return reference
    module = dotted_name(file, project)
    return f"{module}:{name}" if module else reference


def prepare_project(reference: str, folder: str = "") -> str:
    """Set the import path and variables that the project's files define for an agent.

    Return the folder from which to import the agent; ``folder`` if the project's files
    define nothing for it.
    """
    project = Path(folder or Path.cwd())
    named = [agent for agent in _graphs(project) if agent.reference == reference]
    if _is_crewai(project) and (project / "src").is_dir():
        roots = (project / "src", project)
        named.append(ProjectAgent("", reference, "crewai", "", roots))
    for agent in named:
        agent.prepare()
    return str(named[-1].roots[0]) if named else folder


def _graphs(project: Path) -> list[ProjectAgent]:
    """Return the Python graphs that ``langgraph.json`` names."""
    path = project / LANGGRAPH_FILE
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return []
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"Cannot read {path}: {error}.") from None
    graphs = data.get("graphs") if isinstance(data, dict) else None
    if not isinstance(graphs, dict):
        return []
    roots = _dependencies(project, data.get("dependencies"))
    env = data.get("env", {})
    if isinstance(env, dict):
        env = {str(name): str(value) for name, value in env.items()}
    else:
        env = project / str(env)
    found = []
    for name, entry in graphs.items():
        where = entry.get("path") if isinstance(entry, dict) else entry
        if isinstance(where, str) and (place := _place(project, where, roots)):
            reference, root = place
            every = tuple(dict.fromkeys([root, *roots, project.resolve()]))
            agent = ProjectAgent(
                name, reference, "langchain", LANGGRAPH_FILE, every, env
            )
            found.append(agent)
    return found


def _dependencies(project: Path, listed: Any) -> list[Path]:
    """Return the local folders among langgraph.json's ``dependencies``.

    If such a folder contains a folder ``src``, return ``src`` too.
    """
    names = listed if isinstance(listed, list) else ["."]
    folders = [
        (project / name).resolve()
        for name in names
        if isinstance(name, str) and name.startswith(".")
    ]
    each = [(folder / "src", folder) for folder in folders]
    return [root for pair in each for root in pair if root.is_dir()]


def _place(project: Path, where: str, roots: list[Path]) -> tuple[str, Path] | None:
    """Convert ``./file.py:name`` to ``module:name`` and the folder to import it from.

    Returns None for a graph that is not written in Python.
    """
    path, _, name = where.rpartition(":")
    if not path.endswith(".py"):
        is_module = path and "/" not in path and not path.endswith((".ts", ".js"))
        return (where, project.resolve()) if is_module else None
    file = (project / path).resolve()
    return _module_of(file, [*roots, project.resolve()], name)


def _module_of(file: Path, roots: list[Path], name: str) -> tuple[str, Path]:
    """Return ``module:name`` for a name in a file, and the folder to import it from."""
    root = package_root(file)
    if root == file.parent:
        above = [each for each in roots if file.is_relative_to(each)]
        root = max(above, key=lambda each: len(each.parts), default=root)
    if module := dotted_name(file, root):
        return f"{module}:{name}", root
    return f"{os.path.relpath(file, roots[-1])}:{name}", roots[-1]


def _variables(env: Path | Mapping[str, str]) -> Mapping[str, str]:
    if isinstance(env, Mapping):
        return env
    if not env.is_file():
        return {}
    from dotenv import dotenv_values

    try:
        found = dotenv_values(env, encoding="utf-8")
    except (OSError, ValueError) as error:
        raise ConfigError(f"Cannot read {env}: {error}.") from None
    return {name: value for name, value in found.items() if value is not None}


def _is_crewai(project: Path) -> bool:
    """Return whether a folder has the pyproject.toml of a CrewAI project."""
    try:
        text = (project / PYPROJECT_FILE).read_text(encoding="utf-8")
        return "crewai" in tomllib.loads(text).get("tool", {})
    except (OSError, ValueError, RecursionError):
        return False


def _crews(project: Path) -> list[ProjectAgent]:
    """Find the classes decorated with ``@CrewBase``, without importing them."""
    if not _is_crewai(project):
        return []
    source = project / "src"
    root = source if source.is_dir() else project
    found = []
    for file in islice(_python_files(root), _MOST_FILES):
        text = ""
        with suppress(OSError, ValueError):
            text = file.read_text(encoding="utf-8")
        for name in _CREW.findall(text):
            reference, top = _module_of(file, [root], name)
            found.append(
                ProjectAgent(name, reference, "crewai", PYPROJECT_FILE, (top, root))
            )
    return found


def _python_files(root: Path) -> Iterator[Path]:
    for folder, below, files in os.walk(root):
        below[:] = sorted(
            name for name in below if name[0] not in "._" and name not in _SKIPPED
        )
        for name in sorted(files):
            if name.endswith(".py"):
                yield Path(folder, name)
