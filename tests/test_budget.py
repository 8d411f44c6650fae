"""The size of the source: what budget.toml allows, counted as it is printed here.

    uv run python tests/test_budget.py

prints every count with its limit. A limit only falls. A comment next to a limit that
was raised says which lines were removed for it.
"""

import ast
import sys
import tomllib
from collections.abc import Iterable
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


def lines_of_code(text: str, nodes: Iterable[ast.AST]) -> int:
    """Count lines that are not blank, a comment or part of a docstring."""
    told = {
        number
        for node in nodes
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


def _runs_at_import(node: ast.AST) -> bool:
    """Return whether what stands in ``node`` runs when its file is imported."""
    return not isinstance(node, _FUNCTION) and not (
        isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)
    )


def counted() -> dict[str, int]:
    """Return every count of the budget, by its name in budget.toml."""
    layers = _layers()
    paths = layers.python_files(SOURCE)
    lines, code = dict[str, int](), dict[str, int]()
    early, late = dict[str, set[str]](), dict[str, set[str]]()
    for name, path in paths.items():
        text = path.read_text()
        tree = ast.parse(text)
        nodes = [tree, *layers.statements(tree)]
        lines[name] = len(text.splitlines())
        code[name] = lines_of_code(text, nodes)
        at_import = layers.statements(tree, _runs_at_import)
        for graph, found in ((early, at_import), (late, nodes)):
            targets = {layers.locate(m, paths) for m in layers.modules(name, found)}
            graph[name] = targets - {None, name}
    loop, whole = closure(early, START), closure(late, START)
    tests = layers.python_files(ROOT / "tests").values()
    return {
        "core_code": sum(
            count
            for name, count in code.items()
            if not name.startswith(OUTSIDE_THE_CORE)
        ),
        "code": sum(code.values()),
        "lines": sum(lines.values()),
        "files": len(lines),
        "loop_files": len(loop),
        "loop_lines": sum(lines[name] for name in loop),
        "loop_files_with_later_imports": len(whole),
        "loop_lines_with_later_imports": sum(lines[name] for name in whole),
        "test_lines": sum(len(path.read_text().splitlines()) for path in tests),
    }


def test_no_count_is_over_its_limit() -> None:
    limits = tomllib.loads((ROOT / "budget.toml").read_text())
    counts = counted()
    assert counts.keys() == limits.keys()
    assert {name: n for name, n in counts.items() if n > limits[name]} == {}


def test_code_is_counted_without_docstrings_comments_and_blank_lines() -> None:
    text = '"""Doc.\n\nMore.\n"""\n\n# A comment.\nx = """a\nb"""\n\n\ndef f():\n'
    text += '    """Doc."""\n    return x  # why\n'
    assert lines_of_code(text, ast.walk(ast.parse(text))) == 4


if __name__ == "__main__":
    limits = tomllib.loads((ROOT / "budget.toml").read_text())
    for name, count in counted().items():
        print(f"{name:32}{count:>9,}{limits.get(name, 0):>9,}")  # noqa: T201
