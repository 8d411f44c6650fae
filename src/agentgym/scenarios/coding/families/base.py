"""The parts of every family of tasks: a request, a project, and a goal to check."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal, Protocol, Self

from agentgym.core.task import Split, Task
from agentgym.scenarios.coding.invented import names_for
from agentgym.scenarios.coding.names import Names
from agentgym.scenarios.coding.projects import Module, Project
from agentgym.scenarios.coding.wording import PHRASES
from agentgym.scenarios.wording.grammar import Phrases

Level = Literal[1, 2, 3]


@dataclass(frozen=True)
class Step:
    """One call of the shortest solution.

    Attributes:
        tool: Its tool.
        args: Its arguments.
        others: Alternative arguments that are equally right.
    """

    tool: str
    args: dict[str, str]
    others: tuple[dict[str, str], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the step as JSON for a task's goal."""
        return {"tool": self.tool, "args": self.args, "others": list(self.others)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Step":
        """Parse the JSON of :meth:`to_json`."""
        return cls(data["tool"], data["args"], tuple(data["others"]))


@dataclass(frozen=True)
class Draft:
    """A task without its identity.

    Attributes:
        instruction: The user's request.
        files: The project at the start.
        plan: The calls of the shortest solution.
        ordered: Whether the plan's calls are the goal; otherwise only the project's
            final state is.
        expected: Files that must change, with a text of equal meaning.
        formatted: Files that must be formatted at the end.
        hidden: For each module, expressions in its namespace and the ``repr`` of their
            values; with them, ``expected`` is only one of the right solutions.
    """

    instruction: str
    files: dict[str, str]
    plan: tuple[Step, ...]
    ordered: bool = True
    expected: dict[str, str] = field(default_factory=dict)
    formatted: tuple[str, ...] = ()
    hidden: dict[str, dict[str, str]] = field(default_factory=dict)

    def goal(self) -> dict[str, Any]:
        """Return the goal of a task."""
        return {
            "plan": [step.to_json() for step in self.plan],
            "ordered": self.ordered,
            "expected": self.expected,
            "formatted": list(self.formatted),
            "hidden": self.hidden,
        }


@dataclass(frozen=True)
class Scene:
    """The source of a family's random choices.

    Attributes:
        rng: Source of random choices.
        split: Split of the wordings and faults.
        names: Names for the project.
    """

    rng: Random
    split: Split
    names: Names


class ProjectDraft(Protocol):
    """A task about a generated project, without its identity."""

    @property
    def instruction(self) -> str:
        """The user's request."""

    @property
    def files(self) -> dict[str, str]:
        """The project at the start."""

    def goal(self) -> dict[str, Any]:
        """Return the goal of a task."""


@dataclass(frozen=True)
class ProjectFamily[D: ProjectDraft]:
    """One kind of task about a generated project.

    Attributes:
        name: Its name.
        level: Its level.
        phrases: Wordings of its requests.
        draft: Creates a draft.
    """

    name: str
    level: Level
    phrases: Phrases
    draft: Callable[[Scene, Phrases], D]

    def make_task(self, split: Split, seed: int, index: int) -> Task:
        """Return the ``index``-th task; the arguments determine it."""
        identity = f"{split}/{self.name}/{seed}/{index}"
        rng = Random(identity)
        draft = self.draft(Scene(rng, split, names_for(split, rng)), self.phrases)
        return Task(
            id=identity,
            split=split,
            seed=seed,
            family=self.name,
            level=self.level,
            instruction=draft.instruction,
            initial_state={"files": draft.files},
            goal=draft.goal(),
        )


class Family(ProjectFamily[Draft]):
    """A kind of task of the coding scenario."""

    @classmethod
    def of(cls, level: Level, draft: Callable[[Scene, Phrases], Draft]) -> Self:
        """Return the family named after ``draft``, with the phrases of that name."""
        name = draft.__name__.removeprefix("_")
        return cls(name, level, PHRASES[name], draft)


def pick_module(scene: Scene, project: Project) -> Module:
    """Return a random module of a project."""
    return scene.rng.choice(project.modules)


def definition(name: str) -> tuple[dict[str, str], ...]:
    """Return alternative searches for the definition of a function or constant."""
    return {"query": f"def {name}"}, {"query": f"{name} ="}
