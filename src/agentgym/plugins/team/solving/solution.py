"""Solution: the files that a coding team wrote, with tests, review and cost."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from agentgym.errors import UsageError
from agentgym.sandbox.commands import check_files

Outcome = Literal["passed", "failed", "untested", "stopped"]


class Usage(NamedTuple):
    """Numbers of model calls and tokens of a role; 0 tokens if not reported."""

    calls: int = 0
    prompt_tokens: int = 0
    response_tokens: int = 0


@dataclass(frozen=True, kw_only=True)
class Solution:
    """The result of one request to a team.

    Attributes:
        outcome: ``failed`` if a test failed, a serious finding of the review is left,
            or no file was written. Otherwise ``passed`` if tests passed, ``untested``
            without tests. ``stopped`` if the work ended early.
        files: All files of the project: relative path to text.
        changed: Paths of the files that differ from the user's, sorted.
        tests: Counts of ``passed`` and ``failed`` tests, and the ``failures``; None if
            no test has run since the last edit.
        findings: Findings of the review: ``path``, ``line``, ``severity``, ``message``.
        history: The turns of all roles: ``role``, ``round`` (number of the generator's
            turns so far), ``did`` (summary) and ``said`` (the role's last message).
        cost: US dollars; None if no prices were given.
        error: Why the work ended early; empty if it did not, or if a person stopped it.
    """

    problem: str
    outcome: Outcome
    files: Mapping[str, str]
    changed: tuple[str, ...] = ()
    tests: Mapping[str, Any] | None = None
    findings: tuple[Mapping[str, Any], ...] = ()
    history: tuple[Mapping[str, Any], ...] = ()
    usage: Mapping[str, Usage] = field(default_factory=dict)
    cost: float | None = None
    notes: tuple[str, ...] = ()
    error: str = ""

    @property
    def passed(self) -> bool:
        """Whether the outcome is ``passed``."""
        return self.outcome == "passed"

    def save(self, folder: str | Path) -> list[Path]:
        """Write the changed files into a folder, and return their paths.

        Existing files are replaced. Nothing outside of the folder is written, even
        through symbolic links.

        Raises:
            UsageError: A file cannot be written.
        """
        root = Path(folder).expanduser().resolve()
        kept = {path: self.files[path] for path in self.changed if path in self.files}
        check_files(kept)
        written = []
        for name, text in kept.items():
            path = root / name
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                if not path.parent.resolve().is_relative_to(root) or path.is_symlink():
                    raise UsageError(
                        f"{path} is outside of {root}, by a link; it is not written."
                    )
                path.write_text(text, encoding="utf-8", newline="")
            except OSError as error:
                raise UsageError(f"Cannot write {path}: {error.strerror}.") from None
            written.append(path)
        return written

    def record(self) -> dict[str, Any]:
        """Return the solution as a dict that can be written as JSON."""
        made = asdict(self)
        made["usage"] = {role: used._asdict() for role, used in self.usage.items()}
        return made
