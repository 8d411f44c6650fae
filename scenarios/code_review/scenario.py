"""CodeReviewScenario: find planted defects, and report their files and lines."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, ClassVar, Literal

from agentgym.core.needs import NeededCall
from agentgym.core.task import Split, Task
from agentgym.core.tools import ToolSpec, tool_specs
from agentgym.core.trajectory import Reward, Trajectory
from agentgym.packs.coding import projects, references
from agentgym.packs.coding.drafts import Level, ProjectFamily, Scene
from agentgym.packs.coding.families import seed_fault
from agentgym.packs.coding.projects import Module, Project
from agentgym.packs.kit.leveled import LeveledScenario
from agentgym.packs.kit.phrases import Phrases, read_phrases, request
from agentgym.scenarios.base import Environment, own_environment
from agentgym.scenarios.plan_reward import (
    NO_CALL,
    PROGRESS,
    SPARE_CALLS,
    Attempts,
    melted,
    success_parts,
    tools_called,
)
from agentgym.scenarios.rewards.static_checks import EXTRA, require_checks

from .environment import (
    ReviewBooks,
    ReviewEnvironment,
)
from .plants import (
    Plant,
    Planted,
    PlantKind,
    of_kind,
    plant_all,
)

PHRASES = read_phrases(Path(__file__).parent / "wording")

ERROR = -0.04
VIOLATION = -0.2
FALSE_REPORT = -0.15
_MOST_COUNTED = 2
_MOST_ERRORS = 6
_LOOK = 0.5


def score(task: Task, books: ReviewBooks, trajectory: Trajectory) -> Reward:
    """Score a finished review.

    In a success, the agent reported every planted bug and security problem by file,
    line and kind, and reported nothing else. It also read or linted all requested
    files, broke no rule, and made few needless calls. A success earns 1, minus a little
    for each needless call.

    Without success, let ``n`` be the number of calls in the shortest solution. F1 (the
    harmonic mean of precision and recall) then earns up to 0.45 * (1 - 1/n). Reading or
    linting all requested files earns up to 0.225 / n. Each false report costs 0.15, so
    reporting every line does not pay.
    """
    attempts = Attempts.of(books, trajectory)
    if not attempts.tools:
        return Reward(NO_CALL, False, {"no_call": NO_CALL}, 0.0, 0.0)
    plan = task.goal["plan"]
    defects = {tuple(defect) for defect in task.goal["defects"]}
    reports = set(books.reports)
    hits, false = len(defects & reports), len(reports - defects)
    looked = set(task.goal["look"]) <= books.read | books.linted
    spare = SPARE_CALLS[task.level]
    over = max(0, len(attempts.tools) - len(plan) - spare)
    right_tool = tools_called((tool for tool, _ in plan), attempts.tools) / len(plan)
    right_call = (hits + looked) / (len(defects) + 1)
    precise = hits == len(defects) and not false
    if precise and looked and not attempts.violations and not over:
        parts = success_parts(attempts, len(plan), ERROR)
        return Reward(sum(parts.values()), True, parts, 1.0, 1.0)
    credit = PROGRESS * (1.0 - 1.0 / len(plan)) * f1(defects, reports)
    parts = {
        "found": credit * melted(over),
        "looked": PROGRESS / len(plan) * _LOOK * looked * melted(over),
        "false reports": FALSE_REPORT * false,
        "errors": ERROR * min(len(attempts.failed), _MOST_ERRORS),
        "rules": VIOLATION * min(attempts.violations, _MOST_COUNTED),
    }
    value = sum(parts.values())
    if value < -1.0:
        parts["limit"] = -1.0 - value
    return Reward(max(-1.0, value), False, parts, right_tool, right_call)


def f1(defects: Iterable[object], reports: Iterable[object]) -> float:
    """Return F1, the harmonic mean of precision and recall; 0 if no report is right."""
    planted, made = set(defects), set(reports)
    hits = len(planted & made)
    return 2 * hits / (len(planted) + len(made)) if hits else 0.0


_STYLE = 0.4
"""Probability that a reviewed module also has a style problem."""

Defect = tuple[str, int, str]
"""Path, line and kind of a defect."""
PlannedCall = tuple[str, dict[str, Any]]


@dataclass(frozen=True)
class Review:
    """The content of a task, before it gets an id.

    Attributes:
        defects: Path, line and kind of each defect that the agent must report.
        look: Paths of the files that the agent must read or lint.
    """

    instruction: str
    files: dict[str, str]
    defects: tuple[Defect, ...]
    look: tuple[str, ...]
    plan: tuple[PlannedCall, ...]

    def goal(self) -> dict[str, Any]:
        """Return the task's goal as JSON values."""
        return {
            "defects": [list(defect) for defect in self.defects],
            "look": list(self.look),
            "plan": [list(call) for call in self.plan],
        }


ReviewFamily = ProjectFamily[Review]


def _planting(name: str, level: Level, phrases: str, *kinds: PlantKind) -> ReviewFamily:
    """Create a kind of task: review a module with one defect of each kind."""

    def draft(scene: Scene, phrases: Phrases) -> Review:
        return _module_review(scene, phrases, kinds)

    return ReviewFamily(name, level, PHRASES[phrases], draft)


def _module_review(
    scene: Scene, phrases: Phrases, kinds: tuple[PlantKind, ...]
) -> Review:
    """Create a task to review one module, which has one defect of each of ``kinds``."""
    rng, project = scene.rng, projects.build(scene.rng, scene.names)
    module = rng.choice(project.modules)
    planted = _plant(scene, project, module, kinds)
    reference = references.module(rng, scene.split, module.package, module.name)
    return _review(
        request(rng, phrases, scene.split, {"file": reference}),
        project.files | {module.path: planted.source},
        _at(module, planted),
        (module.path,),
        ("lint", {"path": module.path}),
    )


def _package_review(scene: Scene, phrases: Phrases) -> Review:
    """Create a task to review a package: one or both modules have one defect each."""
    rng, project = scene.rng, projects.build(scene.rng, scene.names)
    files, defects = dict(project.files), list[Defect]()
    bad = rng.sample(project.modules, rng.choice((1, 2)))
    for module in bad:
        planted = _plant(scene, project, module, (rng.choice(("bug", "security")),))
        files[module.path] = planted.source
        defects += _at(module, planted)
    return _review(
        request(rng, phrases, scene.split, {"package": project.package}),
        files,
        tuple(sorted(defects)),
        tuple(sorted(module.path for module in project.modules)),
        ("lint", {"path": project.package}),
    )


def _comparison(scene: Scene, phrases: Phrases) -> Review:
    """Create a task to find the function whose code differs from its docstring."""
    rng = scene.rng
    broken = seed_fault(scene, rng.choice(("operator", "condition", "value")))
    module = broken.module
    lines = broken.files[module.path].split("\n")
    defect = (module.path, lines.index(f"    {broken.wrong}") + 1, "bug")
    reference = references.module(rng, scene.split, module.package, module.name)
    return _review(
        request(rng, phrases, scene.split, {"file": reference}),
        broken.files,
        (defect,),
        (module.path,),
        ("read_file", {"path": module.path}),
    )


def _review(
    instruction: str,
    files: dict[str, str],
    defects: tuple[Defect, ...],
    look: tuple[str, ...],
    first: PlannedCall,
) -> Review:
    reports: list[PlannedCall] = [
        ("report_finding", {"path": path, "line": line, "kind": kind})
        for path, line, kind in defects
    ]
    return Review(instruction, files, defects, look, (first, *reports))


def _at(module: Module, planted: Planted) -> tuple[Defect, ...]:
    return tuple((module.path, line, kind) for line, kind in planted.defects)


def _plant(
    scene: Scene, project: Project, module: Module, kinds: tuple[PlantKind, ...]
) -> Planted:
    """Add one defect of each of ``kinds`` to a module, and maybe a style problem."""
    rng = scene.rng
    wanted: list[PlantKind] = [*kinds]
    if rng.random() < _STYLE:
        wanted.append("style")
    plants = [_draw(rng, kind, scene.split) for kind in wanted]
    rng.shuffle(plants)
    text = "\n".join(project.files.values())
    words = (*scene.names.nouns, *scene.names.adjectives)
    free = [word for word in words if word not in text]
    names = rng.sample(free, 2 * len(plants))
    return plant_all(
        rng,
        project.files[module.path],
        plants,
        names=names,
        parameters=scene.names.parameters,
    )


def _draw(rng: Random, kind: PlantKind, split: Split) -> Plant:
    return rng.choice(of_kind(kind, split))


FAMILIES: tuple[ReviewFamily, ...] = (
    _planting("review_clean", 1, "review"),
    _planting("review_bug", 1, "review", "bug"),
    _planting("review_security", 1, "review", "security"),
    _planting("review_both", 2, "review", "bug", "security"),
    ReviewFamily("review_package", 2, PHRASES["review_package"], _package_review),
    ReviewFamily("compare", 3, PHRASES["compare"], _comparison),
)


SYSTEM_PROMPT = (
    "You are a code reviewer in a small Python project. Use the tools, then answer in "
    "a few words. Rules: look at a file before you report; report each bug and each "
    "security problem with its file, line and kind, and nothing else; style is not "
    "reported."
)


class CodeReviewScenario(LeveledScenario):
    """Tasks to find planted bugs and security problems in small Python packages.

    Raises:
        MissingExtraError: The extra ``code-quality`` is not installed.
    """

    name: ClassVar[str] = "code_review"
    description: ClassVar[str] = "Review small Python packages and report defects."
    difficulty: ClassVar[Literal["beginner", "intermediate", "advanced"]] = (
        "intermediate"
    )
    estimated_time: ClassVar[str] = "10 to 20 minutes on 2 cores"
    max_turns: ClassVar[int] = 9
    extras: ClassVar[tuple[str, ...]] = (EXTRA,)

    def __init__(self) -> None:
        require_checks("The scenario code_review")

    def system_prompt(self) -> str:
        """Return the system prompt: the agent's role and its rules."""
        return SYSTEM_PROMPT

    def tools(self) -> list[ToolSpec]:
        """Return the agent's five tools."""
        return tool_specs(ReviewEnvironment)

    def families(self) -> Sequence[ReviewFamily]:
        """Return the families (kinds of task) of all levels."""
        return FAMILIES

    def create_environment(self, task: Task) -> ReviewEnvironment:
        """Return a new environment with the project that the task asks to review."""
        return ReviewEnvironment(task.initial_state["files"])

    def calculate_reward(
        self, task: Task, environment: Environment, trajectory: Trajectory
    ) -> Reward:
        """Score a review by the agent's reports; see :func:`score`."""
        own = own_environment(ReviewEnvironment, environment)
        return score(task, own.books, trajectory)

    def needed_calls(self, task: Task) -> list[NeededCall]:
        """Return the calls that lint or read the files, and report each defect."""
        return [NeededCall(tool, arguments) for tool, arguments in task.goal["plan"]]
