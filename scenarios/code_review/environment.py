"""ReviewEnvironment: a project to review, the agent's five tools and its reports."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from agentgym.errors import ToolError
from agentgym.packs.coding.base import ReadableProject, ReadingBooks
from agentgym.packs.kit.code_rewards import CodeFinding, find_problems
from agentgym.packs.kit.environment import recorded

_MOST_FINDINGS = 6
_LONGEST_MESSAGE = 48
Reported = tuple[str, int, str]
"""Path, line and kind of a problem that the agent reported."""


@dataclass
class ReviewBooks(ReadingBooks):
    """Record of an episode: the calls, the files read or linted, and the reports."""

    linted: set[str] = field(default_factory=set)
    reports: list[Reported] = field(default_factory=list)


class ReviewEnvironment(ReadableProject[ReviewBooks]):
    """A small Python project to review; the agent cannot change it."""

    def __init__(self, files: Mapping[str, str]) -> None:
        super().__init__(files, ReviewBooks())

    def shown(self, name: str) -> str:
        """Return the text of a file, with a number before each line."""
        lines = self.workspace.files[name].rstrip("\n").split("\n")
        return "\n".join(f"{number}: {text}" for number, text in enumerate(lines, 1))

    @recorded
    def lint(self, path: str) -> str:
        """Check a file or a folder for problems."""
        name = self.call["path"] = self.workspace.resolve(path)
        files = self._below(name)
        found = [f for f in find_problems(files) if is_worth_a_line(f)]
        self.books.linted |= files.keys()
        lines = [_line(each) for each in found[:_MOST_FINDINGS]]
        if len(found) > len(lines):
            lines.append(f"({len(found) - len(lines)} more; check single files)")
        return "\n".join(lines) or "No problems."

    @recorded
    def report_finding(
        self, path: str, line: int, kind: Literal["bug", "security"]
    ) -> str:
        """Report a problem at a line of a file."""
        name = self.call["path"] = self.workspace.file(path)
        if name not in self.books.read | self.books.linted:
            self.forbid(f"look at {name} before you report.")
        if not 1 <= line <= self.workspace.files[name].count("\n"):
            raise ToolError(f"{name} has no line {line}.")
        if any(report[:2] == (name, line) for report in self.books.reports):
            raise ToolError(f"line {line} of {name} is reported already.")
        self.books.reports.append((name, line, kind))
        return f"Reported line {line} of {name}."

    def _below(self, name: str) -> dict[str, str]:
        """Return the text of a file, or of all files in a folder, by path."""
        every = self.workspace.files
        if name in every:
            return {name: every[name]}
        inside = {
            path: text
            for path, text in every.items()
            if name == "." or path.startswith(f"{name}/")
        }
        if not inside:
            raise ToolError(f"there is no file or folder {name}.")
        return inside


def is_worth_a_line(found: CodeFinding) -> bool:
    """Return whether ``lint`` shows a finding; not low ones, nor import order."""
    hint = found.kind == "security" and found.severity == "low"
    return not hint and found.rule != "I001"


def _line(found: CodeFinding) -> str:
    message = found.message.replace("`", "")
    if len(message) > _LONGEST_MESSAGE:
        message = message[:_LONGEST_MESSAGE].rsplit(" ", 1)[0]
    return f"{found.path}:{found.line}: {found.kind}: {message.rstrip('.')}"
