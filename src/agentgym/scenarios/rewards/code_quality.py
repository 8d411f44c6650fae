"""Parts of a reward for code quality: style, security and complexity.

All Python files that the agent changed are checked, also tests. Only problems that the
initial code did not have reduce the reward. The number of problems counts, not their
density, so additional clean code does not compensate for a problem.
"""

from collections import Counter
from collections.abc import Mapping
from typing import ClassVar

from agentgym.errors import ScenarioError
from agentgym.scenarios.rewards.parts import RewardPart, SubmittedCode
from agentgym.scenarios.rewards.static_checks import (
    COMPLEX,
    VERY_COMPLEX,
    Kind,
    Severity,
    complexities,
    find_problems,
)


class _FewProblems(RewardPart[SubmittedCode]):
    """A part of a reward that each new problem reduces, by the problem's severity.

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
        before = Counter(
            (found.path, found.rule)
            for found in find_problems(code.start, self.kinds)
            if found.path in changed
        )
        added: list[Severity] = []
        for found in find_problems(code.files, self.kinds):
            if found.path not in changed:
                continue
            if before[found.path, found.rule]:
                before[found.path, found.rule] -= 1
            else:
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
    """Return each function's complexity.

    ``{"": VERY_COMPLEX}`` if the code does not parse.
    """
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
