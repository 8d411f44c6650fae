"""Run static checks of Python code: ruff, bandit and radon.

These checks parse the code and never run it. Code cannot turn off a check:
configuration and ``# noqa`` are ignored. Results for the same files are cached.
"""

import json
import subprocess
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar, Literal, get_args

from agentgym.errors import MissingExtraError, ScenarioError
from agentgym.packs.kit.code_rewards.parts import (
    RewardPart,
    SubmittedCode,
    is_test_file,
)
from agentgym.sandbox.commands import check_files

Kind = Literal["bug", "style", "security", "complexity"]
"""The kind of a finding; :data:`KINDS` has all kinds."""
Severity = Literal["high", "medium", "low"]
KINDS: tuple[Kind, ...] = get_args(Kind)
"""All kinds of findings: ``bug``, ``style``, ``security``, ``complexity``."""
_LINTED = frozenset({"bug", "style"})

EXTRA = "code-quality"
MOST_CHARACTERS = 400_000
"""Most characters of all files together. With more, nothing is checked, and each file
gets a finding that says so."""
COMPLEX = 10
"""Highest cyclomatic complexity that is not a finding: radon's grade B."""
VERY_COMPLEX = 20

_REMEMBERED = 512
_TIMEOUT_S = 120.0
_BUGS = ("B", "E9", "F", "PLE")
_STYLE = ("C4", "E", "I", "N", "RET", "SIM", "UP", "W")
_NOT_STYLE = ("E902",)
_FAILS_WHEN_RUN = ("E9", "F82", "PLE")
_OPTIONS = ("--isolated", "--no-cache", "--ignore-noqa", "--exit-zero", "--quiet")
_TARGET = "--target-version=py312"
_ORDER = {severity: place for place, severity in enumerate(get_args(Severity))}


@dataclass(frozen=True, kw_only=True)
class CodeFinding:
    """One problem found by a static check.

    Attributes:
        path: Path of the file, as given to :func:`find_problems`.
        severity: ``high`` for code that fails or can be exploited when it runs,
            ``medium`` for probable problems, ``low`` for style problems and hints.
        rule: Id of the rule, e.g. ``F401``, ``B602``, ``CC``.
        tool: ``ruff``, ``bandit`` or ``radon``.
    """

    path: str
    line: int
    severity: Severity
    kind: Kind
    rule: str
    message: str
    tool: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule} {self.message}"


def find_problems(
    files: Mapping[str, str], kinds: Iterable[Kind] = KINDS
) -> list[CodeFinding]:
    """Return the problems in Python files, sorted by file, line and severity.

    Files of other languages are ignored. ``assert`` is not a problem in test files.

    Args:
        files: Text of each file, by relative path.
        kinds: Kinds of problems to check for.

    Raises:
        MissingExtraError: The extra ``code-quality`` is not installed.
        SandboxError: A path is absolute or leaves the folder.
        ScenarioError: A kind is unknown, or a check did not finish.
    """
    wanted = frozenset(kinds)
    if unknown := wanted - set(KINDS):
        raise ScenarioError(
            f"There is no kind of finding {sorted(unknown)[0]!r}; there are "
            f"{', '.join(KINDS)}."
        )
    sources = tuple(sorted((p, t) for p, t in files.items() if p.endswith(".py")))
    check_files(path for path, _ in sources)
    if not sources:
        return []
    require_checks("Checking code")
    if sum(len(text) for _, text in sources) > MOST_CHARACTERS:
        why = "the files are too long to check"
        found = [_unchecked(path, kind, why) for path, _ in sources for kind in KINDS]
    else:
        found = [
            *(_linted(sources) if wanted & _LINTED else ()),
            *(_scanned(sources) if "security" in wanted else ()),
            *(_measured(sources) if "complexity" in wanted else ()),
        ]
    return sorted((f for f in found if f.kind in wanted), key=_place)


def require_checks(purpose: str) -> None:
    """Check that ruff, bandit and radon are installed, without importing them."""
    if not all(map(find_spec, ("ruff", "bandit", "radon"))):
        raise MissingExtraError(EXTRA, purpose)


def _place(found: CodeFinding) -> tuple[str, int, int, str]:
    return found.path, found.line, _ORDER[found.severity], found.rule


def _unchecked(path: str, kind: Kind, why: str) -> CodeFinding:
    """Return the finding which says that a file cannot be checked."""
    tools = {"security": "bandit", "complexity": "radon"}
    return CodeFinding(
        path=path,
        line=1,
        severity="high",
        kind=kind,
        rule="unchecked",
        message=f"The file is {why}.",
        tool=tools.get(kind, "ruff"),
    )


@lru_cache(_REMEMBERED)
def _linted(sources: tuple[tuple[str, str], ...]) -> tuple[CodeFinding, ...]:
    """Return bugs and style problems, as ruff finds them."""
    from ruff.__main__ import find_ruff_bin

    with TemporaryDirectory(prefix="agentgym-checks-") as folder:
        paths = _write(folder, sources)
        select = f"--select={','.join(sorted({*_BUGS, *_STYLE} - {*_NOT_STYLE}))}"
        command = [find_ruff_bin(), "check", *_OPTIONS, _TARGET, select]
        try:
            done = subprocess.run(
                [*command, "--output-format=json", "--", *paths],
                cwd=folder,
                env={},
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=_TIMEOUT_S,
                check=False,
            )
            report: list[dict[str, Any]] = json.loads(done.stdout)
        except subprocess.TimeoutExpired:
            raise ScenarioError(
                f"ruff gave no answer in {_TIMEOUT_S:.0f} s; is this machine busy?"
            ) from None
        except ValueError:  # It crashed, because of the code.
            why = "not readable for ruff"
            return tuple(_unchecked(p, "bug", why) for p, _ in sources)
        return tuple(_of_ruff(item, paths) for item in report)


def _of_ruff(item: dict[str, Any], paths: Mapping[str, str]) -> CodeFinding:
    code = item["code"] or "invalid-syntax"
    if code in ("invalid-syntax", "E902"):
        severity, kind = "high", "bug"
    elif code.startswith(_BUGS):
        severity = "high" if code.startswith(_FAILS_WHEN_RUN) else "medium"
        kind = "bug"
    else:
        severity, kind = "low", "style"
    return CodeFinding(
        path=paths[item["filename"]],
        line=item["location"]["row"] if item["location"] else 1,
        severity=severity,  # type: ignore[arg-type]
        kind=kind,  # type: ignore[arg-type]
        rule=code,
        message="".join(c if c.isprintable() else " " for c in item["message"]),
        tool="ruff",
    )


@lru_cache(_REMEMBERED)
def _scanned(sources: tuple[tuple[str, str], ...]) -> tuple[CodeFinding, ...]:
    """Return security problems, as bandit finds them."""
    from bandit.core.config import BanditConfig
    from bandit.core.manager import BanditManager

    with TemporaryDirectory(prefix="agentgym-checks-") as folder:
        paths = _write(folder, sources)
        manager = BanditManager(BanditConfig(), "file", quiet=True, ignore_nosec=True)
        manager.files_list = [*paths]
        manager.run_tests()
        found = [
            CodeFinding(
                path=paths[issue.fname],
                line=issue.lineno,
                severity=issue.severity.lower(),
                kind="security",
                rule=issue.test_id,
                message=issue.text,
                tool="bandit",
            )
            for issue in manager.get_issue_list()
            if not (issue.test_id == "B101" and is_test_file(paths[issue.fname]))
        ]
        skipped = [paths[path] for path, _ in manager.get_skipped()]
    why = "not readable for bandit"
    return (*found, *(_unchecked(path, "security", why) for path in skipped))


@lru_cache(_REMEMBERED)
def _measured(sources: tuple[tuple[str, str], ...]) -> tuple[CodeFinding, ...]:
    """Return the functions that are too complex, as radon measures them."""
    return tuple(found for path, text in sources for found in _complex(path, text))


def _complex(path: str, text: str) -> Iterator[CodeFinding]:
    try:
        blocks = complexities(text)
    except ValueError:
        yield _unchecked(path, "complexity", "not valid Python")
        return
    for name, line, complexity in blocks:
        if complexity > COMPLEX:
            yield CodeFinding(
                path=path,
                line=line,
                severity="high" if complexity > VERY_COMPLEX else "medium",
                kind="complexity",
                rule="CC",
                message=f"{name} has a cyclomatic complexity of {complexity}; keep it "
                f"at {COMPLEX} or less.",
                tool="radon",
            )


def complexities(text: str) -> list[tuple[str, int, int]]:
    """Return the name, line and cyclomatic complexity of each function in a source.

    Each method and each nested function has its own entry.

    Raises:
        MissingExtraError: The extra ``code-quality`` is not installed.
        ValueError: The source is not valid Python, or is nested too deeply.
    """
    require_checks("Measuring the complexity of code")
    from radon.complexity import cc_visit
    from radon.visitors import Function

    try:
        blocks = cc_visit(text, no_assert=True)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError(f"It does not parse: {error}.") from error
    inner = [
        closure
        for block in blocks
        if isinstance(block, Function)
        for closure in block.closures
    ]
    functions = [block for block in blocks if isinstance(block, Function)]
    return [(f.fullname, f.lineno, f.complexity) for f in (*functions, *inner)]


def _write(folder: str, sources: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Write source files into a folder."""
    written = {}
    root = Path(folder).resolve()
    for name, text in sources:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", errors="surrogatepass", newline="")
        written[str(path)] = name
    return written


class _FewProblems(RewardPart[SubmittedCode]):
    """A part of a reward that each new problem reduces, by the problem's severity.

    Only problems that the initial code did not have count, by number, not density:
    more clean code does not make up for a problem.

    Attributes:
        costs: Share of the part that one problem removes, by severity.
    """

    kinds: ClassVar[tuple[Kind, ...]]
    costs: ClassVar[Mapping[Severity, float]]

    def share(self, evidence: SubmittedCode) -> float:
        """Return 1 minus the costs of the problems that the agent added; at least 0."""
        return max(0.0, 1.0 - sum(self.costs[s] for s in self._added(evidence)))

    def _added(self, code: SubmittedCode) -> list[Severity]:
        """Return the severity of each problem that the initial code did not have."""
        changed = _changed(code, self.name)
        known = find_problems(code.start, self.kinds)
        before = Counter((found.path, found.rule) for found in known)
        added: list[Severity] = []
        for found in find_problems(code.files, self.kinds):
            if before[found.path, found.rule]:
                before[found.path, found.rule] -= 1
            elif found.path in changed:
                added.append(found.severity)
        return added


class Style(_FewProblems):
    """Style and bugs, as ruff finds them.

    The part earns 0 with 10 style problems, with 5 probable bugs, or with one error
    that makes code fail, such as a syntax error.
    """

    name: ClassVar[str] = "style"
    kinds: ClassVar[tuple[Kind, ...]] = ("bug", "style")
    costs: ClassVar[Mapping[Severity, float]] = {"high": 1.0, "medium": 0.2, "low": 0.1}


class Security(_FewProblems):
    """Security, as bandit finds problems.

    The part earns 0 with one problem of high severity, two of medium severity, or ten
    of low severity.
    """

    name: ClassVar[str] = "security"
    kinds: ClassVar[tuple[Kind, ...]] = ("security",)
    costs: ClassVar[Mapping[Severity, float]] = {"high": 1.0, "medium": 0.5, "low": 0.1}


class Complexity(RewardPart[SubmittedCode]):
    """Cyclomatic complexity of the most complex function, as radon computes it.

    A complexity of up to 10 earns 1, and of 20 or more earns 0. Only functions that are
    new or more complex than in the initial code count.
    """

    name: ClassVar[str] = "complexity"

    def share(self, evidence: SubmittedCode) -> float:
        """Return the earned share of the part, from 1 (simple) to 0 (complex).

        Raises:
            MissingExtraError: The extra ``code-quality`` is not installed.
            ScenarioError: No Python file was changed.
        """
        worst = 0
        for path, text in _changed(evidence, self.name).items():
            before = _by_name(evidence.start.get(path, ""))
            for name, complexity in _by_name(text).items():
                if complexity > before.get(name, 0):
                    worst = max(worst, complexity)
        over = (worst - COMPLEX) / (VERY_COMPLEX - COMPLEX)
        return min(1.0, max(0.0, 1.0 - over))


def _by_name(text: str) -> dict[str, int]:
    """Return each function's complexity; a high one if the code does not parse."""
    try:
        return {name: complexity for name, _, complexity in complexities(text)}
    except ValueError:
        return {"": VERY_COMPLEX}


def _changed(code: SubmittedCode, name: str) -> dict[str, str]:
    if not code.changed:
        raise ScenarioError(
            f"{name} is measured in Python files that the agent changed, and there are "
            "none. For other languages write a RewardPart of your own."
        )
    return code.changed
