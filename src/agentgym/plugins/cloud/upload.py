"""Collect the files, packages, variables and settings that a remote run needs."""

import ast
import os
import re
import sys
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from importlib.metadata import (
    PackageNotFoundError,
    metadata,
    packages_distributions,
    version,
)
from pathlib import Path

from agentgym.core.agent import COMMAND, is_command
from agentgym.core.config import TrainingConfig
from agentgym.core.import_hints import imported_by
from agentgym.core.task import TaskSource
from agentgym.engines.registry import engine_name, remote_engine
from agentgym.errors import UnsupportedError, UsageError
from agentgym.evaluate.ranker import check_judge
from agentgym.models.folder import model_source
from agentgym.models.reference import is_converted, is_on_loopback, key_variable
from agentgym.plugins.judge.group import JudgeSettings
from agentgym.scenarios.packs import has_options, is_path, is_tasks_file, with_options
from agentgym.scenarios.registry import data_of, extras_of
from agentgym.scenarios.tool_tasks.task_file import answers_path
from agentgym.version import DISTRIBUTION

_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]{2,}")
_OWN_VARIABLES = frozenset(
    {
        *("HOME", "HOSTNAME", "LANG", "LOGNAME", "OLDPWD", "PATH", "PWD", "SHELL"),
        *("SHLVL", "TERM", "TMPDIR", "USER", "CUDA_VISIBLE_DEVICES", "VIRTUAL_ENV"),
        *("LD_LIBRARY_PATH", "PYTHONPATH", "SSH_AUTH_SOCK"),
    }
)
"""Environment variables that are not sent, since every machine sets its own."""
_SECRET = (".env", ".key", ".pem", ".p12", ".pfx")
_SKIPPED = frozenset({"__pycache__", "node_modules"})
_NOT_PINNED = frozenset({DISTRIBUTION, "torch"})
_ALWAYS = ("HF_ENDPOINT", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "AGENTGYM_SECRETS")


@dataclass
class _Sources:
    """The files, packages and environment variables that the user's modules need.

    Files have the keys of their paths in the remote working folder. Variables are
    those that are set and named in the code, and a few that are always sent.
    """

    files: dict[str, Path] = field(default_factory=dict)
    packages: set[str] = field(default_factory=set)
    variables: set[str] = field(
        default_factory=lambda: {name for name in _ALWAYS if os.environ.get(name)}
    )

    def add_module(self, module: str, folder: Path) -> None:
        """Add a module, the local modules that it imports, and its data files."""
        waiting, seen = [module.partition(".")[0]], set[str]()
        if module.endswith(".py"):
            waiting = self._add_file(module, folder)
        distributions = packages_distributions()
        while waiting:
            top = waiting.pop()
            if top in seen or top in sys.stdlib_module_names:
                continue
            seen.add(top)
            if not _has_module(folder, top):
                self._add_package(distributions.get(top, []))
            elif (module_file := folder / f"{top}.py").is_file():
                if _may_go(module_file, folder):
                    self.files[module_file.name] = module_file
                    waiting += self._read(module_file, folder)
            else:
                for path in self.add_folder(folder / top, top):
                    waiting += self._read(path, folder)

    def _add_file(self, module: str, folder: Path) -> list[str]:
        """Add the module at a path; return the modules and folders to add with it."""
        path = Path(os.path.normpath(folder / module))
        if not path.is_relative_to(folder):
            return []
        top, *below = path.relative_to(folder).parts
        if below:
            return [top]
        if _may_go(path, folder):
            self.files[top] = path
        return self._read(path, folder)

    def add_tree(self, folder: Path, to: str) -> None:
        """Add a folder's files, and requirements for their imports."""
        distributions = packages_distributions()
        for path in self.add_folder(folder, to):
            for top in self._read(path, folder):
                if not _has_module(folder, top):
                    self._add_package(distributions.get(top, []))

    def add_folder(self, folder: Path, to: str) -> list[Path]:
        """Add a folder's files, except hidden, secret and cache files; return them.

        ``to`` is the folder's path in the upload. The targets of symbolic links are
        added in their place, but not a folder inside of itself.
        """
        files = dict[str, Path]()

        def walk(place: Path, name: str, above: tuple[Path, ...]) -> None:
            for path in sorted(place.iterdir()):
                inside, real = f"{name}/{path.name}", path.resolve()
                if path.name in _SKIPPED or not _may_go(path, folder):
                    continue
                if path.is_file() and path.suffix != ".pyc":
                    files[inside] = path
                is_inside = any(each.is_relative_to(real) for each in above)
                is_environment = (path / "pyvenv.cfg").exists()
                if path.is_dir() and not is_inside and not is_environment:
                    walk(path, inside, (*above, real))

        walk(folder, to, (folder.resolve(),))
        self.files |= files
        return list(files.values())

    def _read(self, path: Path, folder: Path) -> list[str]:
        """Add data files and variables that a module names; return its imports."""
        if path.suffix != ".py":
            return []
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, SyntaxError):
            return []  # the import by training raises the error
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                self._note(node.value, folder, path.parent)
        return imported_by(tree)

    def _note(self, text: str, folder: Path, module_folder: Path) -> None:
        """Add the variable or local file that a string in the code names."""
        if _VARIABLE.fullmatch(text):
            if os.environ.get(text) and text not in _OWN_VARIABLES:
                self.variables.add(text)
            return
        if not text or len(text) > 200 or "\n" in text or "\0" in text:
            return
        for place in (folder, module_folder):
            path = Path(os.path.normpath(place / text))
            if path.is_relative_to(folder) and path.is_file() and _may_go(path, folder):
                self.files[path.relative_to(folder).as_posix()] = path

    def _add_package(self, names: Iterable[str]) -> None:
        for name in names:
            if name.lower() not in _NOT_PINNED:
                try:
                    self.packages.add(f"{name}=={version(name).partition('+')[0]}")
                except PackageNotFoundError:
                    continue


def _has_module(folder: Path, top: str) -> bool:
    """Return whether a folder has a module or package of this name."""
    return (folder / f"{top}.py").is_file() or any((folder / top).glob("*.py"))


def _may_go(path: Path, folder: Path) -> bool:
    """Return whether a file may be sent: not a hidden one, a key or ``.env``."""
    real, root = path.resolve(), folder.resolve()
    # The folders above, which a link's target may share, can have any name.
    shared = Path(os.path.commonpath([real, root]))
    return not any(
        place.name.endswith(_SECRET) or any(part.startswith(".") for part in parts)
        for place, parts in (
            (path, path.relative_to(folder).parts),
            (real, real.relative_to(shared).parts),
        )
    )


_INPUTS = "AGENTGYM-INPUTS"
"""Stands for the path of the remote folder ``inputs/`` in settings."""
MOST_BYTES = 200 * 2**20
"""Most bytes of a run's files to send; the model's folder is not counted."""
ENGINES = ("local", "vllm")
"""Engines that can train on another machine."""
_HERE_ONLY = ("gpu", "engine", "output", "name", "scenario", "model")


@dataclass(frozen=True)
class Upload:
    """The files, packages, variables and settings to send to the remote machine.

    Attributes:
        files: Local files, by their path in the remote folder ``inputs/``.
        extras: Extras of the package agentgym to install.
        packages: Further packages to install, as requirements for pip.
        variables: Values of environment variables, by name; they may be secret.
        changed: The settings ``scenario`` and ``model`` of the remote run.
    """

    config: TrainingConfig
    files: dict[str, Path]
    extras: list[str]
    packages: list[str]
    variables: dict[str, str] = field(repr=False)
    changed: dict[str, str]

    def remote_config(self, folder: str, name: str) -> TrainingConfig:
        """Return the settings of the remote run ``name`` in the remote ``folder``."""
        inputs = f"{folder}/inputs"
        return self.config.replaced(
            gpu="auto",
            engine=remote_engine(self.config),
            output=Path(folder) / "runs",
            name=name,
            **{key: v.replace(_INPUTS, inputs) for key, v in self.changed.items()},
        )

    def with_remote_changes(
        self, sent: TrainingConfig, found: TrainingConfig
    ) -> TrainingConfig:
        """Return the local settings, with the changes that the remote machine made."""
        old, new = (config.flat(config.model_dump()) for config in (sent, found))
        changes = {
            key: value
            for key, value in new.items()
            if value != old[key] and key not in _HERE_ONLY
        }
        return self.config.replaced(**changes)

    def with_local_paths(self, text: str, folder: str) -> str:
        """Return a text with paths in the remote ``folder`` replaced by local paths."""
        for name, path in self.files.items():
            text = text.replace(f"{folder}/inputs/{name}", str(path))
        text = text.replace(f"{folder}/inputs", os.getcwd())
        return text.replace(f"{folder}/runs", str(self.config.output))


def make_upload(config: TrainingConfig) -> Upload:
    """Collect everything that a remote run needs, without importing the user's code."""
    if engine_name(config) not in ENGINES:
        raise UnsupportedError(
            f"engine = {config.engine!r} with gpu = {config.gpu!r}: on another machine "
            f"only the engines {' and '.join(ENGINES)} train. Log in there and run "
            "the same command with --gpu auto."
        )
    sources, here = _Sources(), Path.cwd()
    agent = config.agent
    if agent.reference is not None and is_command(agent.reference):
        raise UsageError(
            f"--command {agent.reference.removeprefix(COMMAND)!r} with gpu = "
            f"{config.gpu!r}: a program, and the packages of its language, are not "
            "sent to another machine. Log in there and run the same command with "
            "--gpu auto."
        )
    named = (agent.reference, agent.context, agent.inputs, agent.on_interrupt)
    for reference in named:
        if reference is not None:
            sources.add_module(reference.partition(":")[0], here)
    scenario = _add_scenario(config.scenario, sources)
    size = sum(path.stat().st_size for path in sources.files.values())
    if size > MOST_BYTES:
        most = max(sources.files.values(), key=lambda path: path.stat().st_size)
        raise UsageError(
            f"The files of the run take {size / 2**20:,.0f} MB, and "
            f"{MOST_BYTES / 2**20:.0f} MB are the most that is sent; the largest file "
            f"is {most}. Move it out of the folder of the agent or the pack."
        )
    model = config.model
    source = model_source(config.model) if is_converted(config.model) else config.model
    if (folder := Path(source)).is_dir():
        model = f"{_INPUTS}/model/{folder.name}"
        sources.add_folder(folder, f"model/{folder.name}")
    if config.tracker == "wandb" and os.environ.get("WANDB_API_KEY"):
        sources.variables.add("WANDB_API_KEY")
    check_judge(config)
    if (judge := JudgeSettings.of(config).model) is not None:
        if is_on_loopback(judge):
            raise UsageError(
                f"judge = {judge!r} with gpu = {config.gpu!r}: that machine "
                "cannot reach a server at a loopback address of this one. Give an "
                "address that it reaches, or a provider's model."
            )
        sources.variables |= {key_variable(judge)} & os.environ.keys()
    extras = ["local"]
    framework = config.framework.replace("_", "-")
    known = metadata(DISTRIBUTION).get_all("Provides-Extra") or []
    extras += [framework] * (framework in known)
    extras += ["wandb"] * (config.tracker == "wandb")
    extras += extras_of(config.scenario)
    return Upload(
        config=config,
        files=sources.files,
        extras=extras,
        packages=sorted(sources.packages),
        variables={name: os.environ[name] for name in sorted(sources.variables)},
        changed={"scenario": scenario, "model": model},
    )


def _add_scenario(reference: str, sources: _Sources) -> str:
    """Add a scenario's files to ``sources``; return the remote setting for it."""
    if is_tasks_file(reference):
        source = TaskSource.parse(reference)
        folder, file = Path(source.folder or os.getcwd()), Path(source.path)
        for each in (*source.tools, *([source.check] if source.check else [])):
            module = each.removeprefix("@").partition(":")[0]
            sources.add_module(module, folder)
        for each_file in (file, answers_path(file)):
            if each_file.is_file():
                sources.files[f"tasks/{each_file.name}"] = each_file
        remote = replace(source, path=f"{_INPUTS}/tasks/{file.name}", folder=_INPUTS)
        return str(remote)
    if has_options(f"{reference.partition('?')[0]}?"):  # a benchmark
        if (data := data_of(reference)) is None:
            return reference
        if data.is_dir():
            sources.add_folder(data, f"data/{data.name}")
        else:
            sources.files[f"data/{data.name}"] = data
        return with_options(reference, data=f"{_INPUTS}/data/{data.name}")
    if not is_path(reference):
        return reference
    path = Path(reference)
    folder = path if path.is_dir() else path.parent
    sources.add_tree(folder, f"packs/{folder.name}")
    with suppress(OSError):
        text = (folder / "requirements.txt").read_text(encoding="utf-8")
        lines = [line.partition(" #")[0].strip() for line in text.splitlines()]
        sources.packages |= {x for x in lines if x and not x.startswith(("#", "-"))}
    below = "" if path.is_dir() else f"/{path.name}"
    return f"{_INPUTS}/packs/{folder.name}{below}"
