"""A project in memory: the agent's tools to read, edit, check and run it."""

import shlex
from collections.abc import Mapping
from random import Random

from agentgym.core.task import Split
from agentgym.errors import ToolError
from agentgym.packs.kit.environment import RecordingEnvironment, recorded
from agentgym.packs.kit.tasks import GeneratedScenario
from agentgym.sandbox import Sandbox
from agentgym.sandbox.workspace import Workspace

from . import checks, execution
from .execution import (
    TESTS,
    is_test_path,
    tests_of,
)
from .names import Names, names_for

_MOST_MATCHES = 5
_MOST_CHARACTERS = 1_200


class ReadableProject(RecordingEnvironment):
    """A small Python project in memory, with tools to list, read and search."""

    def __init__(self, files: Mapping[str, str], *, enforce_rules: bool = True) -> None:
        super().__init__(enforce_rules=enforce_rules)
        self.workspace = Workspace(files)
        self.files_read: set[str] = set()

    @recorded
    def list_files(self, path: str = ".") -> str:
        """List the files in a folder."""
        folder = self.call["path"] = self.workspace.resolve(path)
        found = self.workspace.below(folder)
        if not found:
            raise ToolError(f"there is no folder {folder}.")
        return "\n".join(found)

    @recorded
    def read_file(self, path: str) -> str:
        """Read a file."""
        name = self.call["path"] = self.workspace.file(path)
        self.files_read.add(name)
        return self.shown(name)[:_MOST_CHARACTERS].rstrip("\n")

    @recorded
    def search_code(self, query: str) -> str:
        """Search all files for a text."""
        found = search(self.workspace.files, query)
        if not found:
            raise ToolError(f"{query!r} was not found.")
        lines = found[:_MOST_MATCHES]
        if len(found) > len(lines):
            lines.append(f"({len(found) - len(lines)} more)")
        return "\n".join(lines)[:_MOST_CHARACTERS]

    def changed_files(self) -> dict[str, str | None]:
        """Return the new text of each file that the agent changed, by path."""
        return self.workspace.changed()

    def shown(self, name: str) -> str:
        """Return a file's text as the agent sees it; ``read_file`` cuts a long one."""
        return self.workspace.files[name]


def search(files: Mapping[str, str], query: str) -> list[str]:
    """Return each line with ``query`` as ``path:line: text``; tests come last."""
    wanted = query.strip()
    if not wanted:
        return []
    return [
        f"{path}:{number}: {line.strip()}"
        for path in sorted(files, key=lambda path: (is_test_path(path), path))
        if wanted in files[path]
        for number, line in enumerate(files[path].splitlines(), 1)
        if wanted in line
    ]


class ProjectScenario(GeneratedScenario[Names]):
    """A scenario about generated Python projects."""

    def names_for(self, split: Split, rng: Random) -> Names:
        """Return words for the names of a project."""
        return names_for(split, rng)


class CodingEnvironment(ReadableProject):
    """A small Python project in memory, with tools to read, edit, check and run it."""

    def __init__(
        self,
        files: Mapping[str, str],
        sandbox: Sandbox,
        *,
        enforce_rules: bool = True,
    ) -> None:
        super().__init__(files, enforce_rules=enforce_rules)
        self._sandbox = sandbox
        self.untested: set[str] = set()  # modules not tested since their last edit

    @recorded
    def edit_file(self, path: str, old: str, new: str) -> str:
        """Replace a text in a file."""
        name = self.call["path"] = self.workspace.file(path)
        if is_test_path(name):
            self.forbid(f"files under {TESTS}/ may not be changed.")
        if name not in self.files_read:
            self.forbid(f"read {name} before you edit it.")
        self.workspace.replace(name, old, new)
        self.untested.add(name)
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
        self.untested = {
            edited
            for edited in self.untested
            if name not in (TESTS, tests_of(edited)) or files != self.workspace.files
        }
        return report

    @recorded
    async def run_script(self, path: str, args: str = "") -> str:
        """Run a script with arguments."""
        name = self.call["path"] = self.workspace.file(path)
        if name not in self.files_read:
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
