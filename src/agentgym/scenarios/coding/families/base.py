"""The parts of every family of tasks: a request, a project, and a checkable goal."""

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
    """One call of the shortest correct plan.

    Attributes:
        tool: Its tool.
        args: Its arguments.
        others: Other arguments that are as good.
    """

    tool: str
    args: dict[str, str]
    others: tuple[dict[str, str], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """Return it as it stands in a task's goal."""
        return {"tool": self.tool, "args": self.args, "others": list(self.others)}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "Step":
        """Read the JSON of :meth:`to_json`."""
        return cls(data["tool"], data["args"], tuple(data["others"]))


@dataclass(frozen=True)
class Draft:
    """A task without its identity.

    Attributes:
        instruction: The user's request.
        files: The project at the start.
        plan: The shortest correct plan.
        ordered: Whether the calls of the plan are the goal; otherwise only the
            state of the project at the end is.
        expected: Files that must change, and a text that they may mean at the end.
        formatted: Files that must be formatted at the end.
        hidden: For each module, expressions in its names and the ``repr`` of their
            expected values; with them, ``expected`` is only one of the right solutions.
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
        rng: Where choices come from.
        split: Whose wordings and faults to use.
        names: The names for the project.
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
        phrases: How it is asked for.
        draft: Makes a draft.
    """

    name: str
    level: Level
    phrases: Phrases
    draft: Callable[[Scene, Phrases], D]

    def make_task(self, split: Split, seed: int, index: int) -> Task:
        """Return the ``index``-th task; the arguments decide it wholly."""
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
    """One kind of task of the coding scenario."""

    @classmethod
    def of(cls, level: Level, draft: Callable[[Scene, Phrases], Draft]) -> Self:
        """Return the family that has its name, and so its phrases, of ``draft``."""
        name = draft.__name__.removeprefix("_")
        return cls(name, level, PHRASES[name], draft)


def pick_module(scene: Scene, project: Project) -> Module:
    """Return one of a project's modules."""
    return scene.rng.choice(project.modules)


def definition(name: str) -> tuple[dict[str, str], ...]:
    """Return other searches that show where a function or constant is defined."""
    return {"query": f"def {name}"}, {"query": f"{name} ="}
