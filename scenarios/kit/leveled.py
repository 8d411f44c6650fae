"""Base class of scenarios whose tasks have three levels of difficulty."""

from abc import abstractmethod
from collections.abc import Sequence
from random import Random
from typing import ClassVar, Protocol

from agentgym.core.task import Split, Task
from agentgym.errors import UsageError
from agentgym.scenarios.base import Scenario

ALL_LEVELS = (1, 2, 3)
FIRST_LEVELS = (1, 2)


class LeveledFamily(Protocol):
    """One kind of task; all its tasks have the same level."""

    @property
    def level(self) -> int:
        """Difficulty of the family, from 1."""

    def make_task(self, split: Split, seed: int, index: int) -> Task:
        """Return the ``index``-th task of the family, determined by the arguments."""


class LeveledScenario(Scenario):
    """A scenario whose families (kinds of task) have three levels of difficulty."""

    reward_range: ClassVar[tuple[float, float]] = (-1.0, 1.0)
    splits: ClassVar[tuple[Split, ...]] = tuple(Split)

    @abstractmethod
    def families(self) -> Sequence[LeveledFamily]:
        """Return the families, in a fixed order."""

    def tasks(
        self,
        split: Split,
        seed: int,
        count: int,
        levels: Sequence[int] | None = None,
    ) -> list[Task]:
        """Return tasks of mixed levels, from each family in turn."""
        if levels is None:
            levels = ALL_LEVELS if split is Split.TRAIN else FIRST_LEVELS
        if not levels or not set(levels) <= set(ALL_LEVELS):
            raise UsageError(f"Levels are some of {ALL_LEVELS}, not {levels!r}.")
        chosen = [family for family in self.families() if family.level in levels]
        mixed = Random(0).sample(chosen, len(chosen))
        return [
            mixed[i % len(mixed)].make_task(split, seed, i // len(mixed))
            for i in range(count)
        ]

    def held_out(self, seed: int, count: int) -> dict[str, list[Task]]:
        """Return three sets of held-out tasks.

        ``held-out`` has levels 1 and 2, ``out-of-vocabulary`` words that no other split
        uses. It and ``level 3`` have a sixth of ``count`` tasks.
        """
        smaller = max(1, count // 6)
        return {
            "held-out": self.tasks(Split.TEST, seed, count),
            "level 3": self.tasks(Split.TEST, seed, smaller, levels=(3,)),
            "out-of-vocabulary": self.tasks(Split.OUT_OF_VOCABULARY, seed, smaller),
        }
