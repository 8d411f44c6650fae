"""What the user's own modules need: files beside them, packages, variables."""

import ast
import os
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path

_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]{2,}")
_OWN_VARIABLES = frozenset(
    {
        *("HOME", "HOSTNAME", "LANG", "LOGNAME", "OLDPWD", "PATH", "PWD", "SHELL"),
        *("SHLVL", "TERM", "TMPDIR", "USER", "CUDA_VISIBLE_DEVICES", "VIRTUAL_ENV"),
        *("LD_LIBRARY_PATH", "PYTHONPATH", "SSH_AUTH_SOCK"),
    }
)
"""What a machine has of its own."""
_SECRET = (".env", ".key", ".pem", ".p12", ".pfx")
_SKIPPED = frozenset({"__pycache__", "node_modules"})
_NOT_PINNED = frozenset({"agentgym", "torch"})
_ALWAYS = ("HF_ENDPOINT", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")


@dataclass
class Sources:
    """What was found, starting from some modules.

    Attributes:
        files: By path below the folder in which training runs there.
        packages: Distributions that are imported, with the version that is here.
        variables: Environment variables that are set here and named in the code.
    """

    files: dict[str, Path] = field(default_factory=dict)
    packages: set[str] = field(default_factory=set)
    variables: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.variables |= {name for name in _ALWAYS if os.environ.get(name)}

    def add_module(self, module: str, folder: Path) -> None:
        """Add a module of a folder and, of that folder, what it imports and names.

        A package is added as a whole. Of other files, those are added whose path is
        written in the code. What is imported from elsewhere is a package to install.
        """
        waiting, seen = [module.partition(".")[0]], set[str]()
        distributions = packages_distributions()
        while waiting:
            top = waiting.pop()
            if top in seen or top in sys.stdlib_module_names:
                continue
            seen.add(top)
            found = list(_files_of(folder, top))
            if not found:
                self._add_package(distributions.get(top, []))
            for path in found:
                self.files[path.relative_to(folder).as_posix()] = path
                waiting += self._read(path, folder)

    def add_tree(self, folder: Path, to: str) -> None:
        """Add all files of a folder, and what its modules import from elsewhere."""
        distributions = packages_distributions()
        for path in _tree(folder):
            self.files[f"{to}/{path.relative_to(folder).as_posix()}"] = path
            for top in self._read(path, folder):
                if not list(_files_of(folder, top)):
                    self._add_package(distributions.get(top, []))

    def _read(self, path: Path, folder: Path) -> list[str]:
        """Note what a file names, and return the modules that it imports."""
        if path.suffix != ".py":
            return []
        try:
            tree = ast.parse(path.read_text(encoding="utf-8"))
        except (OSError, ValueError, SyntaxError):
            return []  # importing it says what is wrong
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                self._note(node.value, folder, path.parent)
        return list(_imported(tree))

    def _note(self, text: str, folder: Path, beside: Path) -> None:
        """Note a text of the code that names a variable or a file."""
        if _VARIABLE.fullmatch(text):
            if os.environ.get(text) and text not in _OWN_VARIABLES:
                self.variables.add(text)
            return
        if not text or len(text) > 200 or "\n" in text or "\0" in text:
            return
        for place in (folder, beside):
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


def _files_of(folder: Path, top: str) -> Iterator[Path]:
    """Yield the files of a module or a package that lies in a folder."""
    if (folder / f"{top}.py").is_file():
        yield folder / f"{top}.py"
    elif any((folder / top).glob("*.py")):
        yield from _tree(folder / top)


def _tree(folder: Path) -> Iterator[Path]:
    """Yield the files below a folder, without caches, environments and hidden ones."""
    for path in sorted(folder.iterdir()):
        if path.name.startswith(".") or path.name in _SKIPPED:
            continue
        if path.is_dir():
            if not (path / "pyvenv.cfg").exists():
                yield from _tree(path)
        elif path.is_file() and path.suffix != ".pyc" and not _is_secret(path):
            yield path


def _may_go(path: Path, folder: Path) -> bool:
    parts = path.relative_to(folder).parts
    return not (_is_secret(path) or any(part.startswith(".") for part in parts))


def _is_secret(path: Path) -> bool:
    return path.name.endswith(_SECRET)


def _imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module.partition(".")[0]
