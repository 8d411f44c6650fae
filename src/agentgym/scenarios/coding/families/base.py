"""The base of all families (kinds of task): a request, a project, and a goal."""

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
        tool: Name of the tool.
        args: The arguments.
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
    """The content of a task, before it gets an id.

    Attributes:
        instruction: The user's request.
        files: The project at the start: text by path.
        plan: The calls of the shortest solution.
        ordered: Whether a success must make the calls of the plan in order; otherwise
            only the final state of the project counts.
        expected: For each file that must change, a right final text; texts with the
            same meaning are right too.
        formatted: Files that must be formatted at the end.
        hidden: For each module, by path, expressions in its namespace with the ``repr``
            of their right values. If not empty, any code that gives these values is
            right, and ``expected`` is only one example.
    """

    instruction: str
    files: dict[str, str]
    plan: tuple[Step, ...]
    ordered: bool = True
    expected: dict[str, str] = field(default_factory=dict)
    formatted: tuple[str, ...] = ()
    hidden: dict[str, dict[str, str]] = field(default_factory=dict)

    def goal(self) -> dict[str, Any]:
        """Return the goal of the task as JSON values."""
        return {
            "plan": [step.to_json() for step in self.plan],
            "ordered": self.ordered,
            "expected": self.expected,
            "formatted": list(self.formatted),
            "hidden": self.hidden,
        }


@dataclass(frozen=True)
class Scene:
    """The inputs from which a family creates a draft (the content of a task).

    Attributes:
        rng: Source of random choices.
        split: The split whose wordings and faults are used.
        names: Names for the project.
    """

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
        """The project at the start: text by path."""

    def goal(self) -> dict[str, Any]:
        """Return the goal of the task as JSON values."""


@dataclass(frozen=True)
class ProjectFamily[D: ProjectDraft]:
    """One kind of task about a generated project.

    Attributes:
        name: Name of the family.
        level: Difficulty from 1 to 3.
        phrases: Wordings of the requests.
        draft: Creates the content of a task.
    """

    name: str
    level: Level
    phrases: Phrases
    draft: Callable[[Scene, Phrases], D]

    def make_task(self, split: Split, seed: int, index: int) -> Task:
        """Return the ``index``-th task, determined by the arguments."""
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
        """Create a family with the function's name, and the phrases of this name."""
        name = draft.__name__.removeprefix("_")
        return cls(name, level, PHRASES[name], draft)


def pick_module(scene: Scene, project: Project) -> Module:
    """Return a random module of a project."""
    return scene.rng.choice(project.modules)


def definition(name: str) -> tuple[dict[str, str], ...]:
    """Return the arguments of search calls that find where a name is defined."""
    return {"query": f"def {name}"}, {"query": f"{name} ="}
