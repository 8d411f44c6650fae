"""Generated tasks: families (kinds of task), and the base class of their scenarios."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, ClassVar, NamedTuple

from agentgym.core.needs import NeededCall
from agentgym.core.task import Split, Task
from agentgym.core.tools import ToolSpec, tool_specs
from agentgym.errors import UsageError
from agentgym.scenarios.base import Environment, Scenario

from .phrases import Forms, Phrases, draw, request

ALL_LEVELS = (1, 2, 3)
FIRST_LEVELS = (1, 2)


class Draft(NamedTuple):
    """The content of a task, before it gets an id."""

    instruction: str
    state: dict[str, Any]
    goal: dict[str, Any]


class Step(NamedTuple):
    """One call of a task's shortest solution.

    Attributes:
        others: Arguments that are equally right.
        request: Number of the user's request that the call is a part of, from 0.
    """

    tool: str
    args: Mapping[str, Any]
    others: Sequence[Mapping[str, Any]] = ()
    request: int = 0


def plan_of(goal: Mapping[str, Any]) -> list[Step]:
    """Return the calls of the shortest solution that a task's goal lists."""
    plan = goal["plan"]
    return [Step(**it) if isinstance(it, dict) else Step(*it) for it in plan]


@dataclass(frozen=True)
class Scene[N]:
    """The inputs from which a family (kind of task) creates the content of a task.

    Attributes:
        names: The words from which the task's names are made.
        phrases: The family's requests.
    """

    rng: Random
    split: Split
    names: N
    phrases: Phrases

    def ask(self, **slots: str) -> str:
        """Return a random request of the family, with ``slots`` filled in."""
        return request(self.rng, self.phrases, self.split, slots)

    def say(self, forms: Forms, **slots: str) -> str:
        """Return a random phrase of other forms, with ``slots`` filled in."""
        return draw(self.rng, self.split, forms).format(**slots)


@dataclass(frozen=True)
class Family[N]:
    """One kind of task; all its tasks have the same level."""

    name: str
    level: int
    phrases: Phrases
    draft: Callable[[Scene[N]], Draft]


class GeneratedScenario[N](Scenario):
    """A scenario whose families (kinds of task) have three levels of difficulty.

    A subclass sets ``prompt``, ``environment``, the class with the tools, and
    ``families``. ``by_outcome`` are arguments that have no single right value; see
    :class:`~agentgym.core.needs.NeededCall`.
    """

    reward_range: ClassVar[tuple[float, float]] = (-1.0, 1.0)
    splits: ClassVar[tuple[Split, ...]] = tuple(Split)
    prompt: ClassVar[str]
    environment: ClassVar[type[Environment]]
    families: ClassVar[Sequence[Family[Any]]]
    by_outcome: ClassVar[frozenset[str]] = frozenset()

    @abstractmethod
    def names_for(self, split: Split, rng: Random) -> N:
        """Return the words from which the names of a task are made."""

    def system_prompt(self) -> str:
        """Return the system prompt: the agent's role and its rules."""
        return self.prompt

    def tools(self) -> list[ToolSpec]:
        """Return the tools of the environment."""
        return tool_specs(self.environment)

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
        chosen = [family for family in self.families if family.level in levels]
        mixed = Random(0).sample(chosen, len(chosen))
        return [
            self.make_task(mixed[i % len(mixed)], split, seed, i // len(mixed))
            for i in range(count)
        ]

    def make_task(self, family: Family[N], split: Split, seed: int, index: int) -> Task:
        """Return the ``index``-th task of a family, determined by the arguments."""
        identity = f"{split}/{family.name}/{seed}/{index}"
        rng = Random(identity)
        scene = Scene(rng, split, self.names_for(split, rng), family.phrases)
        made = family.draft(scene)
        return Task(
            id=identity,
            split=split,
            seed=seed,
            family=family.name,
            level=family.level,
            instruction=made.instruction,
            initial_state=made.state,
            goal=made.goal,
        )

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

    def needed_calls(self, task: Task) -> list[NeededCall]:
        """Return the calls of the task's shortest solution."""
        return [
            NeededCall(s.tool, s.args, tuple(s.others), self.by_outcome & set(s.args))
            for s in plan_of(task.goal)
        ]
