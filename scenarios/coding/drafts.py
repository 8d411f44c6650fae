"""Base classes of the families (kinds of task) about a generated project."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal, Protocol, Self

from agentgym.core.task import Split, Task
from agentgym.packs.kit.phrases import Phrases

from .names import Names, names_for
from .projects import Module, Project
from .references import PHRASES

Level = Literal[1, 2, 3]


@dataclass(frozen=True)
class Step:
    """One call of a task's shortest solution.

    ``others`` are equally right arguments.
    """

    tool: str
    args: dict[str, str]
    others: tuple[dict[str, str], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return the step as JSON values, for the goal of a task."""
        return {"tool": self.tool, "args": self.args, "others": list(self.others)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Step":
        """Create a step from the JSON values that :meth:`to_json` returned."""
        return cls(data["tool"], data["args"], tuple(data["others"]))


@dataclass(frozen=True)
class Draft:
    """The content of a task, before it gets an id.

    Attributes:
        ordered: Whether a success must make the calls of ``plan`` in order. If False,
            only the final state of the project counts.
        expected: By path, a right final text of each file that must change. Another
            text with the same syntax tree is right too.
        hidden: Expressions to evaluate in each module, by the module's path; each with
            the ``repr`` of its right value. The agent does not see them. If there are
            any, all code that gives these values is right, not only ``expected``.
    """

    instruction: str
    files: dict[str, str]
    plan: tuple[Step, ...]
    ordered: bool = True
    expected: dict[str, str] = field(default_factory=dict)
    formatted: tuple[str, ...] = ()
    hidden: dict[str, dict[str, str]] = field(default_factory=dict)

    def goal(self) -> dict[str, Any]:
        """Return the task's goal as JSON values."""
        return {
            "plan": [step.to_json() for step in self.plan],
            "ordered": self.ordered,
            "expected": self.expected,
            "formatted": list(self.formatted),
            "hidden": self.hidden,
        }


@dataclass(frozen=True)
class Scene:
    """The inputs from which a family (kind of task) creates the content of a task."""

    rng: Random
    split: Split
    names: Names


class ProjectDraft(Protocol):
    """The content of a task about a generated project, before it gets an id."""

    @property
    def instruction(self) -> str:
        """The user's request."""

    @property
    def files(self) -> dict[str, str]:
        """Text of each file of the project at the start, by path."""

    def goal(self) -> dict[str, Any]:
        """Return the task's goal as JSON values."""


@dataclass(frozen=True)
class ProjectFamily[D: ProjectDraft]:
    """One kind of task about a generated project."""

    name: str
    level: Level
    phrases: Phrases
    draft: Callable[[Scene, Phrases], D]

    def make_task(self, split: Split, seed: int, index: int) -> Task:
        """Return the ``index``-th task of this kind, the same for equal arguments."""
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
        """Create a family from a function that creates the content of a task."""
        # Its name, without the underscore, is also the key of its phrases in PHRASES.
        name = draft.__name__.removeprefix("_")
        return cls(name, level, PHRASES[name], draft)


def pick_module(scene: Scene, project: Project) -> Module:
    """Return a random module of a project."""
    return scene.rng.choice(project.modules)


def definition(name: str) -> tuple[dict[str, str], ...]:
    """Return two ways to call ``search_code`` that find the definition of a name."""
    return {"query": f"def {name}"}, {"query": f"{name} ="}
