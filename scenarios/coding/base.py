"""Base classes of environments and scenarios about a generated project."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

from agentgym.core.task import Split
from agentgym.errors import ToolError
from agentgym.packs.kit.environment import RecordingEnvironment, recorded
from agentgym.packs.kit.tasks import GeneratedScenario
from agentgym.sandbox.workspace import Workspace
from agentgym.scenarios.books import Books

from .execution import is_test_path
from .names import Names, names_for

_MOST_MATCHES = 5
_MOST_CHARACTERS = 1_200


@dataclass
class ReadingBooks(Books):
    """Record of an episode: the calls, and the files that the agent read."""

    read: set[str] = field(default_factory=set)


class ReadableProject[B: ReadingBooks](RecordingEnvironment[B]):
    """A small Python project in memory, with tools to list, read and search."""

    def __init__(
        self, files: Mapping[str, str], books: B, *, enforce_rules: bool = True
    ) -> None:
        super().__init__(books, enforce_rules=enforce_rules)
        self.workspace = Workspace(files)

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
        self.books.read.add(name)
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
