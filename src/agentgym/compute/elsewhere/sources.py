"""Find the files, packages and environment variables that the user's modules need."""

import ast
import os
import re
import sys
from collections.abc import Iterable
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path

from agentgym.core.import_hints import imported_by
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
class Sources:
    """The files, packages and environment variables that the user's modules need.

    Attributes:
        files: Local files, by their path in the remote working folder. A symbolic link
            to a file is replaced by the file.
        links: Symbolic links to folders. The keys are the paths of the links, the
            values the paths of the folders, all in the remote working folder.
        packages: Requirements for pip, e.g. imported packages in their local version.
        variables: Names of environment variables to send: set variables that are named
            in the code, and a few that are always sent.
    """

    files: dict[str, Path] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    packages: set[str] = field(default_factory=set)
    variables: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.variables |= {name for name in _ALWAYS if os.environ.get(name)}

    def add_module(self, module: str, folder: Path) -> None:
        """Add a module, the local modules that it imports, and its data files.

        If a module is in a package, the whole package is added. A data file is added
        if its path is a string in the code. For a module that is not in ``folder``, its
        package is added as a requirement.
        """
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
        """Add a folder's files, and requirements for packages that its modules import.

        ``to`` is the folder's path in the upload.
        """
        distributions = packages_distributions()
        for path in self.add_folder(folder, to):
            for top in self._read(path, folder):
                if not _has_module(folder, top):
                    self._add_package(distributions.get(top, []))

    def add_folder(self, folder: Path, to: str) -> list[Path]:
        """Add a folder's files, except hidden, secret and cache files; return them.

        ``to`` is the folder's path in the upload. If several symbolic links point to
        the same folder, its files are added once, and the other links stay links.
        """
        names = {folder.resolve(): to}
        files, links = dict[str, Path](), dict[str, Path]()

        def walk(place: Path, name: str) -> None:
            for path in sorted(place.iterdir()):
                inside = f"{name}/{path.name}"
                if path.name in _SKIPPED or not _may_go(path, folder):
                    continue
                if path.is_dir() and (path.is_symlink() or path.resolve() in names):
                    links[inside] = path
                elif path.is_dir() and not (path / "pyvenv.cfg").exists():
                    names[path.resolve()] = inside
                    walk(path, inside)
                elif path.is_file() and path.suffix != ".pyc":
                    files[inside] = path

        walk(folder, to)
        while links:
            name, path = links.popitem()
            target = path.resolve()
            if target in names:
                self.links[name] = names[target]
            elif not path.parent.resolve().is_relative_to(target):  # not inside itself
                names[target] = name
                if not (path / "pyvenv.cfg").exists():
                    walk(path, name)
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
        """Add the environment variable or local file that a string in the code names.

        Do nothing if the string is neither a set variable nor an existing file.
        """
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
    """Return whether a file may be sent: it is not hidden, not a key and not ``.env``.

    It must not be in a hidden folder either. The target of a symbolic link is checked
    too, but not the parent folders that the target and ``folder`` have in common.
    """
    real, root = path.resolve(), folder.resolve()
    shared = Path(os.path.commonpath([real, root]))
    return not any(
        place.name.endswith(_SECRET) or any(part.startswith(".") for part in parts)
        for place, parts in (
            (path, path.relative_to(folder).parts),
            (real, real.relative_to(shared).parts),
        )
    )
