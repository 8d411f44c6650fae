"""The size of the source: what budget.toml allows, counted as it is printed here.

    uv run python tests/test_budget.py

prints every count with its limit. A limit only falls. A comment next to a limit that
was raised says which lines were removed for it.
"""

import ast
import sys
import tomllib
from functools import cache
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "agentgym"
OUTSIDE_THE_CORE = ("plugins/", "packs/")
START = "train/loop.py"
_FUNCTION = (ast.FunctionDef, ast.AsyncFunctionDef)
_WITH_DOCSTRING = (ast.Module, ast.ClassDef, *_FUNCTION)


@cache
def _layers() -> ModuleType:
    """Return ``test_layers``, which reads imports."""
    sys.path.insert(0, str(ROOT / "src"))
    found = ModuleType("layers")
    file = ROOT / "tests" / "test_layers.py"
    exec(compile(file.read_text(), str(file), "exec"), vars(found))
    return found


def files(root: Path) -> dict[str, str]:
    """Return the text of each Python file, by its path below ``root``."""
    found = _layers().python_files(root)
    return {name: path.read_text() for name, path in found.items()}


def lines_of_code(text: str) -> int:
    """Count lines that are not blank, a comment or part of a docstring."""
    told = {
        number
        for node in ast.walk(ast.parse(text))
        if isinstance(node, _WITH_DOCSTRING)
        for statement in node.body
        if isinstance(statement, ast.Expr)
        and isinstance(statement.value, ast.Constant)
        and isinstance(statement.value.value, str)
        for number in range(statement.lineno, (statement.end_lineno or 0) + 1)
    }
    return sum(
        1
        for number, line in enumerate(text.splitlines(), 1)
        if number not in told and line.strip() and not line.lstrip().startswith("#")
    )


def closure(graph: dict[str, set[str]], start: str) -> set[str]:
    """Return the files that an import of ``start`` reads."""
    seen, left = {start}, [start]
    while left:
        found = graph[left.pop()] - seen
        seen |= found
        left += found
    return seen


def _at_import(root: Path) -> dict[str, set[str]]:
    """Return which file imports which when it is imported itself."""
    layers = _layers()
    paths = layers.python_files(root)
    graph: dict[str, set[str]] = {}
    for name, path in paths.items():
        tree = ast.parse(path.read_text())
        for node in ast.walk(tree):
            if isinstance(node, _FUNCTION) or (
                isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
            ):
                node.body = [ast.Pass()]
        found = {layers.locate(m, paths) for m in layers.modules(name, tree)}
        graph[name] = {each for each in found if each is not None} - {name}
    return graph


def counted() -> dict[str, int]:
    """Return every count of the budget, by its name in budget.toml."""
    source = files(SOURCE)
    core = {n: text for n, text in source.items() if not n.startswith(OUTSIDE_THE_CORE)}
    loop = closure(_at_import(SOURCE), START)
    whole = closure(_layers().read_graph(SOURCE), START)
    tests = files(ROOT / "tests")

    def total(names: set[str]) -> int:
        return sum(len(source[name].splitlines()) for name in names)

    return {
        "core_code": sum(map(lines_of_code, core.values())),
        "code": sum(map(lines_of_code, source.values())),
        "lines": total(set(source)),
        "files": len(source),
        "loop_files": len(loop),
        "loop_lines": total(loop),
        "loop_files_with_later_imports": len(whole),
        "loop_lines_with_later_imports": total(whole),
        "test_lines": sum(len(text.splitlines()) for text in tests.values()),
    }


def test_no_count_is_over_its_limit() -> None:
    limits = tomllib.loads((ROOT / "budget.toml").read_text())
    counts = counted()
    assert counts.keys() == limits.keys()
    assert {name: n for name, n in counts.items() if n > limits[name]} == {}


def test_code_is_counted_without_docstrings_comments_and_blank_lines() -> None:
    text = '"""Doc.\n\nMore.\n"""\n\n# A comment.\nx = """a\nb"""\n\n\ndef f():\n'
    assert lines_of_code(text + '    """Doc."""\n    return x  # why\n') == 4


if __name__ == "__main__":
    limits = tomllib.loads((ROOT / "budget.toml").read_text())
    for name, count in counted().items():
        print(f"{name:32}{count:>9,}{limits.get(name, 0):>9,}")  # noqa: T201
