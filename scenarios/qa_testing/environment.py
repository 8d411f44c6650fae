"""TestingEnvironment: a project to test, the agent's five tools and its tests."""

import ast
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from agentgym.errors import ToolError
from agentgym.packs.coding import execution
from agentgym.packs.coding.base import ReadableProject, ReadingBooks
from agentgym.packs.coding.execution import is_test_path, tests_of
from agentgym.packs.kit.environment import recorded
from agentgym.sandbox import Sandbox
from agentgym.sandbox.guest.plain import plain_text

_LONGEST = 300


class Case(NamedTuple):
    """One test: a call such as ``area_lamp(3, 4)``, with the value it must return."""

    call: str
    expected: Any

    @property
    def function(self) -> str:
        """Name of the function that is called."""
        return self.call.partition("(")[0]


def read_call(text: str, functions: Iterable[str]) -> str:
    """Check a function call, and return it in the format of :func:`ast.unparse`."""
    # Only literals: a test could else read the function's source, and so find mutants.
    wrong = f"{text[:60]!r} is not a call with plain values, as in add(2, 3)."
    if len(text) > _LONGEST:
        raise ToolError(wrong)
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ToolError(wrong) from None
    if not isinstance(tree, ast.Call) or not isinstance(tree.func, ast.Name):
        raise ToolError(wrong)
    if tree.func.id not in functions:
        raise ToolError(f"there is no function {tree.func.id} in the modules.")
    for value in (*tree.args, *(keyword.value for keyword in tree.keywords)):
        try:
            ast.literal_eval(value)
        except (ValueError, TypeError, RecursionError, MemoryError):
            raise ToolError(wrong) from None
    if any(keyword.arg is None for keyword in tree.keywords):
        raise ToolError(wrong)
    return ast.unparse(tree)


def read_value(text: str) -> Any:
    """Parse a literal, such as ``12`` or ``[1, 2]``."""
    try:
        value = ast.literal_eval(text.strip()) if len(text) <= _LONGEST else ...
        plain_text(value)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        raise ToolError(
            f"{text[:60]!r} is not a plain value, as 12 or [1, 2]."
        ) from None
    return value


def render_tests(module: str, cases: Sequence[Case]) -> str:
    """Return the source of a test file with the given tests of one module."""
    names = ", ".join(sorted({case.function for case in cases}))
    blocks = [f"from {module} import {names}"]
    for number, case in enumerate(cases, 1):
        blocks.append(
            f"def test_{case.function}_{number}():\n"
            f"    assert {case.call} == {case.expected!r}"
        )
    return "\n\n\n".join(blocks) + "\n"


_FUNCTION = re.compile(r"^def (\w+)\(", re.MULTILINE)
_MOST_CASES = 20


@dataclass
class TestingBooks(ReadingBooks):
    """The calls, the files read, and the tests added to each module, oldest first."""

    __test__ = False

    cases: dict[str, list[Case]] = field(default_factory=dict)

    @property
    def count(self) -> int:
        """Number of tests that the agent added, in all modules."""
        return sum(map(len, self.cases.values()))


class TestingEnvironment(ReadableProject[TestingBooks]):
    """A small Python project with right code, to which the agent adds tests."""

    __test__ = False

    def __init__(self, files: Mapping[str, str], sandbox: Sandbox) -> None:
        super().__init__(files, TestingBooks())
        self._sandbox = sandbox
        self._modules = {
            name: path
            for path, text in files.items()
            if "/" in path and not is_test_path(path)
            for name in _FUNCTION.findall(text)
        }

    @recorded
    async def run_call(self, call: str) -> str:
        """Call a function and show its value."""
        text = self.call["call"] = read_call(call, self._modules)
        module = _dotted(self._modules[text.partition("(")[0]])
        script = f"from {module} import *\n\nprint(repr({text}))\n"
        files = {**self.workspace.files, "run_call.py": script}
        return await execution.run_script(self._sandbox, files, "run_call.py", ())

    @recorded
    def add_test(self, call: str, expected: str) -> str:
        """Add a test that a call gives a value."""
        text = self.call["call"] = read_call(call, self._modules)
        value = read_value(expected)
        self.call["expected"] = repr(value)
        path = self._modules[text.partition("(")[0]]
        if path not in self.books.read:
            self.forbid(f"read {path} before you test it.")
        cases = self.books.cases.setdefault(path, [])
        if any(case.call == text for case in cases):
            raise ToolError(f"{text} is tested already.")
        if self.books.count >= _MOST_CASES:
            raise ToolError(f"{_MOST_CASES} tests are enough.")
        cases.append(Case(text, value))
        self.workspace.files[tests_of(path)] = render_tests(_dotted(path), cases)
        return f"Added to {tests_of(path)}."

    @recorded
    async def run_tests(self) -> str:
        """Run all tests."""
        files = dict(self.workspace.files)
        return await execution.run_tests(self._sandbox, files, execution.TESTS)


def _dotted(path: str) -> str:
    return path.removesuffix(".py").replace("/", ".")
