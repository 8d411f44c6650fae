"""Create tasks of each kind: a project with planted defects, and a request."""

from dataclasses import dataclass
from random import Random
from typing import Any

from agentgym.core.task import Split
from agentgym.scenarios.code_review.plants import (
    Plant,
    Planted,
    PlantKind,
    of_kind,
    plant_all,
)
from agentgym.scenarios.code_review.wording import PHRASES
from agentgym.scenarios.coding import projects
from agentgym.scenarios.coding.families.base import Level, ProjectFamily, Scene
from agentgym.scenarios.coding.families.level3 import seed_fault
from agentgym.scenarios.coding.projects import Module, Project
from agentgym.scenarios.coding.wording import references
from agentgym.scenarios.wording.grammar import Phrases, request

_STYLE = 0.4
"""Probability that a reviewed module also has a style problem."""

Defect = tuple[str, int, str]
"""Path, line and kind of a defect."""
PlannedCall = tuple[str, dict[str, Any]]


@dataclass(frozen=True)
class Review:
    """The content of a task, before it gets an id.

    Attributes:
        instruction: The user's request.
        files: Text of each file, by relative path.
        defects: Path, line and kind of each defect that the agent must report.
        look: Paths of the files that the agent must read or lint.
        plan: Tool and arguments of each call in the shortest solution.
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
    """Create a kind of task: review a module that has one defect of each of ``kinds``.

    ``phrases`` is the key in ``PHRASES`` of the phrases for the requests.
    """

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
