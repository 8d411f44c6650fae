"""A part of a reward for code that computes the right values in hidden tests."""

from collections.abc import Iterator, Mapping
from itertools import batched, groupby
from typing import Any, ClassVar

from agentgym.errors import ScenarioError
from agentgym.sandbox import gives
from agentgym.scenarios.rewards.parts import RewardPart, SubmittedCode

_AT_ONCE = 100
"""Expressions per execution; the output of more might not fit."""


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
