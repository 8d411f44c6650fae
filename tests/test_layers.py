"""The map of the source: what stands above may import what stands below.

Every import counts, also those inside functions and those for types alone, and those
written as text, as ``agentgym.plugins.cloud.remote:OverSSH``.
"""

import ast
import re
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

import agentgym

SOURCE = Path(agentgym.__file__).parent
LAYERS = (
    "__main__",
    "__init__",
    "plugins",
    "packs",
    "cli",
    "ui",
    "train",
    "serving",
    "evaluate",
    "rollout",
    "integrations",
    "engines",
    "scenarios",
    "sandbox",
    "programs",
    "models",
    "core",
    "errors",
    "install",
    "security",
    "lazy",
    "version",
)
"""From the top of the map to its bottom: folders and files of the package."""
TABLE = "plugins/__init__.py"
"""What plug-ins register, in texts: the core reads it and imports none of them."""
FACADES = ("rollout/__init__.py",)
"""Packages with public names, which are imported at their first use."""
MOST_LINES = 800
BESIDE = {
    "improve": {"cloud"},
    "cloud": {"judge", "vllm"},
    "collect": {"programs"},
    "contract": {"faults"},
    "formats": {"collect"},
    "lightning": {"verl", "vllm"},
    "logs": {"formats"},
    "verl": {"vllm"},
    "view": {"doctor"},
}
"""The plug-ins that a plug-in may import besides itself."""
UPWARD_NAMES = {
    "core/notebook.py names ui/shown.py": (
        "results print with the words and tables of the terminal"
    ),
    "scenarios/tool_tasks/user_code.py names integrations/agent_import.py": (
        "the tools of a tasks file are those of an agent, which its framework's "
        "adapter finds"
    ),
}
"""Names in texts that run up the map, each with its reason; all others run down."""
_NAME = re.compile(r"agentgym(\.\w+)+(:\w+)?")
GIVEN = ("templates",)
"""Folders whose files are a user's own once they are copied."""

Graph = dict[str, set[str]]


def python_files(root: Path) -> dict[str, Path]:
    """Return the Python files below ``root`` and below the link to scenarios/."""
    paths = (path for at in (root, root / "packs") for path in at.rglob("*.py"))
    return {path.relative_to(root).as_posix(): path for path in paths}


@cache
def read_graph(root: Path) -> Graph:
    """Return which file imports which, as paths below ``root``."""
    files = {
        name: path
        for name, path in python_files(root).items()
        if not set(GIVEN) & set(Path(name).parts)
    }
    return {
        name: {
            target
            for module in modules(name, statements(ast.parse(path.read_text())))
            if (target := locate(module, files)) is not None and target != name
        }
        for name, path in files.items()
    }


def names_in_texts(root: Path) -> list[str]:
    """Return the names of files higher up the map that stand in texts."""
    files = python_files(root)
    found = set()
    for name, path in files.items():
        for node in ast.walk(ast.parse(path.read_text())):
            text = node.value if isinstance(node, ast.Constant) else None
            if isinstance(text, str) and _NAME.fullmatch(text):
                target = locate(text.partition(":")[0], files)
                if target in (None, "__init__.py") or name == TABLE:
                    continue
                if layer(target) < layer(name):
                    found.add(f"{name} names {target}")
    return sorted(found)


def statements(
    parent: ast.AST, enters: Callable[[ast.AST], bool] = lambda _: True
) -> Iterator[ast.AST]:
    """Yield the statements below ``parent``, and below each that ``enters`` accepts."""
    for name in ("body", "handlers", "orelse", "finalbody", "cases"):
        for child in getattr(parent, name, ()):
            yield child
            if enters(child):
                yield from statements(child, enters)


def modules(name: str, nodes: Iterable[ast.AST]) -> Iterator[str]:
    """Yield the dotted names that a file imports, members of packages included."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = ["agentgym", *name.split("/")][: -node.level] if node.level else []
            package = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{package}.{alias.name}" for alias in node.names)


def locate(module: str, files: dict[str, Path]) -> str | None:
    """Return the file of a dotted name: its own, or that of what it is a part of."""
    package, *parts = module.split(".")
    if package != "agentgym":
        return None
    for end in range(len(parts), -1, -1):
        stem = "/".join(parts[:end])
        for name in (f"{stem}.py", f"{stem}/__init__.py".lstrip("/")):
            if name in files:
                return name
    return None


def layer(name: str) -> int:
    if name == TABLE:
        return len(LAYERS)
    return LAYERS.index(name.split("/")[0].removesuffix(".py"))


def upward(graph: Graph) -> list[str]:
    """Return the imports that run up the map; packs may take the public names."""
    return [
        f"{name} imports {target}"
        for name, targets in sorted(graph.items())
        for target in sorted(targets)
        if layer(target) < layer(name) and name not in FACADES
        if (layer(name), target) != (PACKS, "__init__.py")
    ]


def circles(graph: Graph) -> list[str]:
    """Return the files in circles of imports, and those between two circles."""
    left = set(graph)
    while True:
        used = {t for name in left for t in graph[name]}
        kept = {name for name in left if graph[name] & left and name in used}
        if kept == left:
            return sorted(left)
        left = kept


@pytest.mark.slow
def test_no_import_runs_up_the_map() -> None:
    graph = read_graph(SOURCE)
    assert len(graph) > 100
    assert upward(graph) == []


@pytest.mark.slow
def test_no_name_in_a_text_runs_up_the_map_but_with_a_reason() -> None:
    assert names_in_texts(SOURCE) == sorted(UPWARD_NAMES)


def test_plug_ins_import_each_other_only_where_one_is_made_of_another() -> None:
    found: dict[str, set[str]] = {}
    for name, targets in read_graph(SOURCE).items():
        for target in targets - {TABLE}:
            if name.startswith("plugins/") and target.startswith("plugins/"):
                found.setdefault(name.split("/")[1], set()).add(target.split("/")[1])
    others = {name: used - {name} for name, used in found.items() if used - {name}}
    assert others == BESIDE


def test_a_name_planted_in_a_text_is_found(tmp_path: Path) -> None:
    for name, text in (
        ("__init__.py", ""),
        ("core/task.py", 'LOOP = "agentgym.train.loop:TrainingLoop"'),
        ("train/loop.py", 'TASK = "agentgym.core.task", "agentgym.nowhere"'),
    ):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert names_in_texts(tmp_path) == ["core/task.py names train/loop.py"]


def test_no_files_import_each_other_in_a_circle() -> None:
    assert circles(read_graph(SOURCE)) == []


def test_core_imports_what_is_below_it() -> None:
    graph = read_graph(SOURCE)
    core = {name: targets for name, targets in graph.items() if layer(name) == CORE}
    assert core
    outside = {t for targets in core.values() for t in targets if layer(t) != CORE}
    assert {t for t in outside if layer(t) < BELOW_CORE} == set()


PACKS = LAYERS.index("packs")
CORE = LAYERS.index("core")
BELOW_CORE = LAYERS.index("errors")


def test_no_file_is_long() -> None:
    files = python_files(SOURCE)
    lines = {name: len(path.read_text().splitlines()) for name, path in files.items()}
    assert {name: n for name, n in lines.items() if n > MOST_LINES} == {}


@pytest.mark.parametrize(
    "statement",
    [
        "from agentgym.train.loop import TrainingLoop",
        "def f():\n    import agentgym.train.loop",
        "if TYPE_CHECKING:\n    from agentgym.train import loop",
    ],
)
def test_a_planted_import_is_found(tmp_path: Path, statement: str) -> None:
    for name, text in (
        ("__init__.py", ""),
        ("core/task.py", statement),
        ("train/loop.py", "from agentgym.core.task import Task"),
    ):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    graph = read_graph(tmp_path)
    assert upward(graph) == ["core/task.py imports train/loop.py"]
    assert circles(graph) == ["core/task.py", "train/loop.py"]
