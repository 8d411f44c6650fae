"""TestingEnvironment: a project to test, the agent's five tools and its tests."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from agentgym.core.tools import tool
from agentgym.errors import ToolError
from agentgym.plugins.packs.coding import execution
from agentgym.plugins.packs.coding.execution import AnySandbox, is_test_path, tests_of
from agentgym.plugins.packs.coding.reading import ReadableProject, ReadingBooks
from agentgym.plugins.packs.qa_testing.cases import (
    Case,
    read_call,
    read_value,
    render_tests,
)
from agentgym.scenarios.books import ReceivedCall

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

    def __init__(self, files: Mapping[str, str], sandbox: AnySandbox) -> None:
        super().__init__(files, TestingBooks())
        self._sandbox = sandbox
        self._modules = {
            name: path
            for path, text in files.items()
            if "/" in path and not is_test_path(path)
            for name in _FUNCTION.findall(text)
        }

    @tool
    async def run_call(self, call: str) -> str:
        """Call a function and show its value."""
        made = {"call": call}
        with self.books.recording(ReceivedCall("run_call", made)):
            text = made["call"] = read_call(call, self._modules)
            module = _dotted(self._modules[text.partition("(")[0]])
            script = f"from {module} import *\n\nprint(repr({text}))\n"
            files = {**self.workspace.files, "run_call.py": script}
            return await execution.run_script(self._sandbox, files, "run_call.py", ())

    @tool
    def add_test(self, call: str, expected: str) -> str:
        """Add a test that a call gives a value."""
        made = {"call": call, "expected": expected}
        with self.books.recording(ReceivedCall("add_test", made)):
            text = made["call"] = read_call(call, self._modules)
            value = read_value(expected)
            made["expected"] = repr(value)
            path = self._modules[text.partition("(")[0]]
            if path not in self.books.read:
                self.books.forbid(f"read {path} before you test it.", enforce=True)
            cases = self.books.cases.setdefault(path, [])
            if any(case.call == text for case in cases):
                raise ToolError(f"{text} is tested already.")
            if self.books.count >= _MOST_CASES:
                raise ToolError(f"{_MOST_CASES} tests are enough.")
            cases.append(Case(text, value))
            self.workspace.files[tests_of(path)] = render_tests(_dotted(path), cases)
            return f"Added to {tests_of(path)}."

    @tool
    async def run_tests(self) -> str:
        """Run all tests."""
        with self.books.recording(ReceivedCall("run_tests", {})):
            files = dict(self.workspace.files)
            return await execution.run_tests(self._sandbox, files, execution.TESTS)


def _dotted(path: str) -> str:
    return path.removesuffix(".py").replace("/", ".")
