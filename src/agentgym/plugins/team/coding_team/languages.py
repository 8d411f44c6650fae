"""The programming languages of a team's projects: test files and checkers."""

import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from agentgym.errors import SandboxError
from agentgym.packs.kit.code_rewards.parts import is_test_file
from agentgym.sandbox import Argv, SandboxResult
from agentgym.sandbox.languages import language_of


@dataclass(frozen=True, kw_only=True)
class TeamLanguage:
    """A programming language of a team's projects.

    Attributes:
        target: Path for code in the generator's answer, if it wrote no file itself.
        seconds: Time limit for a test run or a check, compiling included.
        check: Command line that checks a file, with ``{path}`` for the file. Empty if
            ruff, bandit and radon check the code.
        problem: Pattern for one problem in the output of ``check``, with the groups
            ``line`` and ``message``.
    """

    name: str
    target: str
    test: str
    seconds: float = 10.0
    check: list[str] = field(default_factory=list)
    problem: str = ""

    def checker(self, path: str) -> Argv:
        """Return the command that checks the file at ``path``."""
        return Argv(tuple(word.replace("{path}", path) for word in self.check))

    def problems(self, result: SandboxResult) -> list[tuple[int, str]]:
        """Return line and message of each problem in a check's output.

        If nothing in a failed check's output matches, its first line is the message.
        """
        if result.ok:
            return []
        text = f"{result.stdout}\n{result.stderr}"
        found = [
            (int(match["line"]), match["message"].strip())
            for match in re.finditer(self.problem, text, re.MULTILINE)
        ]
        last = (text.strip().splitlines() or [result.error or result.status])[0]
        return found or [(1, last)]


def _read_languages() -> dict[str, TeamLanguage]:
    file = Path(__file__).with_name("languages.toml")
    rows = tomllib.loads(file.read_text(encoding="utf-8"))
    return {name: TeamLanguage(name=name, **fields) for name, fields in rows.items()}


LANGUAGES: Final = _read_languages()
"""The languages, by name."""
TESTS: Final = ", ".join(language.test for language in LANGUAGES.values())
"""Example names of test files."""

_TEST = re.compile(
    r"(_test\.(go|cpp|cc|cxx)|((^|/)test|[.\-_]test)\.([cm]?js|m?ts)|Tests?\.java)$"
)
_NO_TESTS = ("conftest.py", "__init__.py")


def of_path(path: str) -> TeamLanguage | None:
    """Return the language of a file; None if it is not in one of these languages."""
    try:
        return LANGUAGES[language_of(path)]
    except SandboxError:
        return None


def is_test(path: str) -> bool:
    """Return whether a path is a file of tests, by its name or its folder."""
    return is_test_file(path) or _TEST.search(path) is not None


def holds_tests(path: str) -> bool:
    """Return whether a test runner would run the file, judged by its path alone."""
    return is_test(path) and of_path(path) is not None and not path.endswith(_NO_TESTS)
