"""Combine weighted parts to a reward; a wrong result earns only the first part."""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import batched, groupby
from typing import Any, ClassVar

from agentgym.core.trajectory import Reward
from agentgym.errors import ScenarioError
from agentgym.sandbox import Sandbox, gives

_AT_ONCE = 100
"""Expressions per execution; the output of more might not fit."""


def is_test_file(path: str) -> bool:
    """Return whether a file is in a folder of tests, or has the name of a test file."""
    *folders, name = path.split("/")
    named = name.startswith("test_") or name.endswith("_test.py")
    return named or name == "conftest.py" or "tests" in folders or "test" in folders


@dataclass(frozen=True, kw_only=True)
class SubmittedCode:
    """The code that an agent has at the end of an episode.

    Attributes:
        files: Text of each file at the end, by relative path.
        start: Text of each file at the start, by relative path; empty if the agent
            wrote all files.
        sandbox: The sandbox in which the code runs.
    """

    files: Mapping[str, str]
    sandbox: Sandbox
    start: Mapping[str, str] = field(default_factory=dict)

    @property
    def to_run(self) -> dict[str, str]:
        """The files to run: the final code with the initial test files.

        So tests that the agent wrote or edited cannot change the result.
        """
        own = {p: text for p, text in self.files.items() if not is_test_file(p)}
        return own | {p: text for p, text in self.start.items() if is_test_file(p)}

    @property
    def changed(self) -> dict[str, str]:
        """The Python files that differ from the initial ones."""
        return {
            path: text
            for path, text in self.files.items()
            if path.endswith(".py") and self.start.get(path) != text
        }


class RewardPart[Evidence](ABC):
    """Base class of one part of a reward, e.g. correctness.

    Attributes:
        name: The part's name in ``Reward.parts``.
    """

    name: ClassVar[str]

    @abstractmethod
    def share(self, evidence: Evidence) -> float:
        """Return the share of the part's weight that the episode earns, from 0 to 1.

        Args:
            evidence: The final state of the episode, e.g. a :class:`SubmittedCode`.

        Raises:
            Exception: The part cannot be measured. The episode is then repeated or
                dropped, so raise an exception instead of returning 0.
        """


class ComposedReward[Evidence]:
    """A reward that is the weighted sum of parts; the first part decides success.

    The weights are scaled to add up to 1, so the reward is from 0 to 1. The result is
    right if the share of the first part is 1. Only then the other parts are measured
    and added. A wrong result earns the first part alone, multiplied by ``partial``.
    With the default of 0.5, a wrong result earns less than half as much as a right one.

    Args:
        first: The part that decides whether the result is right, and its weight.
        others: Further parts and their weights.
        partial: Factor for the first part of a wrong result, from 0 to 1.

    Raises:
        ScenarioError: A weight is not above 0, two parts have one name, or ``partial``
            is out of range.
    """

    def __init__(
        self,
        first: tuple[RewardPart[Evidence], float],
        *others: tuple[RewardPart[Evidence], float],
        partial: float = 0.5,
    ) -> None:
        parts: Sequence[tuple[RewardPart[Evidence], float]] = (first, *others)
        names = [part.name for part, _ in parts]
        for part, weight in parts:
            if not (math.isfinite(weight) and weight > 0):
                raise ScenarioError(
                    f"The weight of {part.name!r} is {weight!r}: give a number above "
                    "0, or leave the part out."
                )
            if names.count(part.name) > 1:
                raise ScenarioError(
                    f"Two parts of the reward are named {part.name!r}: rename one."
                )
        if not 0.0 <= partial <= 1.0:
            raise ScenarioError(f"partial is {partial!r}: give a number from 0 to 1.")
        self._partial = partial
        total = sum(weight for _, weight in parts)
        self._parts = [(part, weight / total) for part, weight in parts]

    @property
    def weights(self) -> dict[str, float]:
        """The weight of each part, by the part's name; the weights add up to 1."""
        return {part.name: weight for part, weight in self._parts}

    def score(self, evidence: Evidence) -> Reward:
        """Return the reward; its ``parts`` have the points of each part by name.

        Args:
            evidence: The final state of the episode, e.g. a :class:`SubmittedCode`.

        Raises:
            ScenarioError: A part returned a number outside of 0 to 1.
            Exception: Any exception of a part.
        """
        paid = dict.fromkeys(self.weights, 0.0)
        success = True
        for place, (part, weight) in enumerate(self._parts):
            share = part.share(evidence)
            if not 0.0 <= share <= 1.0:
                raise ScenarioError(
                    f"The part {part.name!r} of the reward returned {share!r}: return "
                    "a number from 0 to 1."
                )
            paid[part.name] = weight * share
            if place == 0 and share < 1.0:
                paid[part.name] *= self._partial
                success = False
                break
        return Reward(sum(paid.values()), success, paid)


class Correctness(RewardPart[SubmittedCode]):
    """The share of hidden expressions that have the right value with the agent's code.

    Values are compared outside of the sandbox, so code cannot fake a right result; see
    ``agentgym.sandbox.gives``. Tests that the agent wrote or edited are removed before
    the code runs. Expressions that are already right with the initial code earn
    nothing. If all of them are, e.g. in a task to make code faster, each change that
    keeps them right earns the whole part. Give the part a small weight in this case.

    Args:
        hidden: Expressions with their right values, by the path of the module, as in
            ``{"shop.py": {"total([2, 3])": 5}}``.
        timeout_s: Time limit in seconds for each 100 expressions.

    Raises:
        ScenarioError: There are no expressions.
    """

    name: ClassVar[str] = "correctness"

    def __init__(
        self, hidden: Mapping[str, Mapping[str, Any]], *, timeout_s: float = 10.0
    ) -> None:
        if not any(hidden.values()):
            raise ScenarioError(
                "Correctness needs hidden expressions: give some as in "
                '{"shop.py": {"total([2, 3])": 5}}.'
            )
        self._hidden = hidden
        self._timeout_s = timeout_s

    def share(self, evidence: SubmittedCode) -> float:
        """Return the share of the initially wrong values that the agent made right.

        The share is 1 only if every value is right, and 0 if the code is unchanged.

        Raises:
            SandboxError: An expression cannot be used, or the sandbox failed.
        """
        if evidence.files == evidence.start:
            return 0.0
        wrong = self._wrong(evidence, evidence.to_run)
        if not wrong:
            return 1.0
        before = self._wrong(evidence, evidence.start)
        return max(0.0, 1.0 - len(wrong) / len(before)) if before else 0.0

    def _wrong(self, code: SubmittedCode, files: Mapping[str, str]) -> set[str]:
        """Return the hidden expressions that have a wrong value with these files."""
        wrong: set[str] = set()
        for expected in self._batches():
            found = gives(code.sandbox, files, expected, timeout_s=self._timeout_s)
            wrong |= found.wrong.keys()
        return wrong

    def _batches(self) -> Iterator[dict[str, dict[str, Any]]]:
        every = (
            (path, expression, value)
            for path, values in self._hidden.items()
            for expression, value in values.items()
        )
        for batch in batched(every, _AT_ONCE):
            yield {
                path: {expression: value for _, expression, value in group}
                for path, group in groupby(batch, key=lambda each: each[0])
            }
