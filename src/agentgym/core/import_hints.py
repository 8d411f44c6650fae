"""Read source files: find the ``module:name`` that was meant, imports, and errors."""

import ast
import os
import sysconfig
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from pathlib import Path

_AGENTS = ("agent", "graph", "app", "crew", "team", "workflow", "make_agent")


def reference_hint(text: str, folder: str | Path = "") -> str:
    """Return " Did you mean 'app:agent'?" for a text without a colon; "" if unknown."""
    place = Path(folder or Path.cwd())
    whole = text.removesuffix(".py").replace("/", ".")
    module, _, name = whole.rpartition(".")
    ways = [
        (whole, _file_of(whole, place), ""),
        (module, _file_of(module, place), name),
    ]
    if text.endswith(".py") and (place / text).is_file():
        ways.append((text, place / text, ""))  # not always a module's name
    for found, path, wanted in ways:
        if path is not None:
            names = names_in(path)
            best = wanted if wanted in names else next(iter(_best(names)), "NAME")
            return f" Did you mean '{found}:{best}'?"
    return ""


def module_hint(module: str, folder: str | Path) -> str:
    """Return which modules of ``folder`` may have been meant, or ""."""
    known = [path.stem for path in Path(folder).glob("*.py")]
    known += [path.parent.name for path in Path(folder).glob("*/__init__.py")]
    close = get_close_matches(module, known, 1, 0.7)
    where = f" No file {module.replace('.', '/')}.py is in {folder}."
    return f"{where} Did you mean {close[0]!r}?" if close else where


def name_hint(module: str, name: str, folder: str | Path, *, agent: bool) -> str:
    """Return which names, or agents, of a module may have been meant, or ""."""
    path = _file_of(module, Path(folder))
    names = [] if path is None else names_in(path)
    best = _best(names, name)
    meant = best[:1] if agent else get_close_matches(name, names, 1, 0.7)
    hint = f" Did you mean '{module}:{meant[0]}'?" if meant else ""
    is_more = len(best) > len(meant)
    return hint + (f" It has: {', '.join(best[:8])}." if is_more else "")


def imported_by(module: ast.AST) -> list[str]:
    """Return the top-level modules that a module imports, without relative imports."""
    found: list[str] = []
    for node in ast.walk(module):
        match node:
            case ast.Import(names=names):
                found += [alias.name.partition(".")[0] for alias in names]
            case ast.ImportFrom(module=str(name), level=0):
                found.append(name.partition(".")[0])
    return found


def names_in(path: Path) -> list[str]:
    """Return the public names that a file defines at its top level."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return []
    return [name for name in _defined(tree.body) if not name.startswith("_")]


def is_users(file: str) -> bool:
    """Return whether a Python file is the user's: not AgentGym's, nor installed."""
    installed = sysconfig.get_paths()
    ours = str(Path(__file__).parent.parent)
    return not file.startswith((ours, installed["stdlib"], installed["purelib"], "<"))


def raised_at(error: BaseException) -> str:
    """Return "file.py, line 3: " for the user's line that raised an error, or ""."""
    found, frame = "", error.__traceback__
    while frame is not None:
        if is_users(file := frame.tb_frame.f_code.co_filename):
            found = f"{os.path.relpath(file)}, line {frame.tb_lineno}: "
        frame = frame.tb_next
    return found


def _file_of(module: str, folder: Path) -> Path | None:
    if not module or not all(part.isidentifier() for part in module.split(".")):
        return None
    place = folder.joinpath(*module.split("."))
    files = place.with_name(f"{place.name}.py"), place / "__init__.py"
    return next((path for path in files if path.is_file()), None)


def _defined(body: Iterable[ast.stmt]) -> Iterator[str]:
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Assign):
            yield from (each.id for each in node.targets if isinstance(each, ast.Name))
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id


def _best(names: list[str], wanted: str = "") -> list[str]:
    """Return names, those that are like ``wanted`` or like an agent's name first."""
    close = get_close_matches(wanted, names, 1, 0.7)
    usual = [name for name in names if any(word in name.lower() for word in _AGENTS)]
    return list(dict.fromkeys([*close, *usual, *names]))
