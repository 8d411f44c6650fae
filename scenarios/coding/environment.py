"""CodingEnvironment: a project in memory, the agent's eight tools and its rules."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

from agentgym.errors import ToolError
from agentgym.packs.kit.environment import recorded
from agentgym.sandbox import Sandbox

from . import checks, execution
from .base import ReadableProject, ReadingBooks
from .execution import (
    TESTS,
    is_test_path,
    tests_of,
)


@dataclass
class CodingBooks(ReadingBooks):
    """The calls, the files read, and the modules not tested since their last edit."""

    untested: set[str] = field(default_factory=set)


class CodingEnvironment(ReadableProject[CodingBooks]):
    """A small Python project in memory, with tools to read, edit, check and run it.

    If ``enforce_rules`` is false, a call that breaks a rule runs, and is only counted.
    """

    def __init__(
        self,
        files: Mapping[str, str],
        sandbox: Sandbox,
        *,
        enforce_rules: bool = True,
    ) -> None:
        super().__init__(files, CodingBooks(), enforce_rules=enforce_rules)
        self._sandbox = sandbox

    @recorded
    def edit_file(self, path: str, old: str, new: str) -> str:
        """Replace a text in a file."""
        name = self.call["path"] = self.workspace.file(path)
        if is_test_path(name):
            self.forbid(f"files under {TESTS}/ may not be changed.")
        if name not in self.books.read:
            self.forbid(f"read {name} before you edit it.")
        self.workspace.replace(name, old, new)
        self.books.untested.add(name)
        return f"Edited {name}."

    @recorded
    async def run_tests(self, path: str = TESTS) -> str:
        """Run all tests, or one test file."""
        name = self.call["path"] = self.workspace.resolve(path)
        if name == ".":
            name = self.call["path"] = TESTS
        if name != TESTS and not is_test_path(self.workspace.file(name)):
            raise ToolError(f"{name} is not under {TESTS}/.")
        files = dict(self.workspace.files)  # Edits may arrive while the tests run.
        report = await execution.run_tests(self._sandbox, files, name)
        self.books.untested = {
            edited
            for edited in self.books.untested
            if name not in (TESTS, tests_of(edited)) or files != self.workspace.files
        }
        return report

    @recorded
    async def run_script(self, path: str, args: str = "") -> str:
        """Run a script with arguments."""
        name = self.call["path"] = self.workspace.file(path)
        if name not in self.books.read:
            self.forbid(f"read {name} before you run it.")
        try:
            arguments = tuple(shlex.split(args))
        except ValueError as error:
            raise ToolError(f"the arguments {args!r} do not parse.") from error
        self.call["args"] = shlex.join(arguments)
        files = dict(self.workspace.files)
        return await execution.run_script(self._sandbox, files, name, arguments)

    @recorded
    def lint(self, path: str) -> str:
        """Check a file for problems."""
        name = self.call["path"] = self.workspace.file(path)
        found = checks.problems(self.workspace.files[name])
        lines = [f"{name}:{line}: {text}" for line, text in found[:3]]
        return "\n".join(lines) or "No problems."

    @recorded
    def format_file(self, path: str) -> str:
        """Format a file."""
        name = self.call["path"] = self.workspace.file(path)
        if is_test_path(name):
            self.forbid(f"files under {TESTS}/ may not be changed.")
        before = self.workspace.files[name]
        after = self.workspace.files[name] = checks.formatted(before)
        return f"{name} is unchanged." if after == before else f"Formatted {name}."
