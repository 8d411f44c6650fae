"""Add up weighted parts of a reward; of a wrong result, only the first part counts."""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from agentgym.core.trajectory import Reward
from agentgym.errors import ScenarioError
from agentgym.sandbox import LazySandbox, Sandbox
from agentgym.scenarios.rewards.static_checks import is_test_file


@dataclass(frozen=True, kw_only=True)
class SubmittedCode:
    """The code at the end of an episode.

    Attributes:
        files: Text of each final file, by relative path.
        start: Text of each initial file; empty if the agent wrote all files.
        sandbox: Sandbox for the code.
    """

    files: Mapping[str, str]
    sandbox: Sandbox | LazySandbox
    start: Mapping[str, str] = field(default_factory=dict)

    @property
    def to_run(self) -> dict[str, str]:
        """The files to run: the final code with the initial tests.

        Tests that the agent wrote or edited have no influence.
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
    """One part of a reward, which earns a share of its weight, from 0 to 1.

    Attributes:
        name: Its name in ``Reward.parts``.
    """

    name: ClassVar[str]

    @abstractmethod
    def share(self, evidence: Evidence) -> float:
        """Return the earned share of the part, from 0 to 1.

        Args:
            evidence: The final state of the episode, e.g. a :class:`SubmittedCode`.

        Raises:
            Exception: The part cannot be measured. The rollout is then retried or
                dropped, so do not return 0 instead.
        """


class ComposedReward[Evidence]:
    """A reward of weighted parts; the first part decides success.

    The weights are scaled to add up to 1, so the reward is from 0 to 1. The other parts
    are measured, and earn something, only if the share of the first part is 1.
    Otherwise the first part earns its share times ``partial``. With the default of 0.5,
    a wrong result earns less than half as much as a right one.

    Args:
        first: The part that decides whether the result is right, and its weight.
        others: Further parts and their weights.
        partial: From 0 to 1: the factor for the first part's share while the result is
            not right.

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
        """The weight of each part by its name; they add up to 1."""
        return {part.name: weight for part, weight in self._parts}

    def score(self, evidence: Evidence) -> Reward:
        """Return the reward with all parts by name; unearned ones are 0.

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
