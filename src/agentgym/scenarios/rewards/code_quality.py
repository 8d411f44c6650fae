"""Reward parts for code quality: style, security, complexity.

Only problems count that the agent added. All Python files that the agent changed are
checked, tests included. Counts are absolute: more clean lines or files do not
compensate for a problem.
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
    """A reward part that is smaller for each new problem, by its severity."""

    kinds: ClassVar[tuple[Kind, ...]]
    costs: ClassVar[Mapping[Severity, float]]

    def share(self, evidence: SubmittedCode) -> float:
        """Return 1 minus a cost for each problem that the agent added, at least 0.

        Raises:
            MissingExtraError: The extra ``code-quality`` is not installed.
            ScenarioError: No Python file was changed.
        """
        return max(0.0, 1.0 - sum(self.costs[s] for s in self._added(evidence)))

    def _added(self, code: SubmittedCode) -> list[Severity]:
        """Return the severity of each finding that the initial code did not have."""
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
    """Style and probable bugs, by ruff: 10 style problems or 5 bugs earn nothing."""

    name: ClassVar[str] = "style"
    kinds: ClassVar[tuple[Kind, ...]] = ("bug", "style")
    costs: ClassVar[Mapping[Severity, float]] = {"high": 1.0, "medium": 0.2, "low": 0.1}


class Security(_FewProblems):
    """Security, by bandit: one serious problem or two possible ones earn nothing."""

    name: ClassVar[str] = "security"
    kinds: ClassVar[tuple[Kind, ...]] = ("security",)
    costs: ClassVar[Mapping[Severity, float]] = {"high": 1.0, "medium": 0.5, "low": 0.1}


class Complexity(RewardPart[SubmittedCode]):
    """Complexity of the worst function, by radon: 10 paths earn all, 20 nothing.

    A function that is not more complex than at the start does not count.
    """

    name: ClassVar[str] = "complexity"

    def share(self, evidence: SubmittedCode) -> float:
        """Return the share to earn: from 1 to 0 for growing complexity.

        The function with the highest complexity decides.

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
    """Return the complexity of each function, by name.

    Code that does not parse has one entry: the name "" with ``VERY_COMPLEX``.
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
