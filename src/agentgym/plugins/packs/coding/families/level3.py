"""Create tasks of level 3: find and repair the fault that makes tests fail."""

from collections.abc import Callable
from dataclasses import dataclass

from agentgym.plugins.packs.coding import functions, projects
from agentgym.plugins.packs.coding.families.base import Draft, Family, Scene, Step
from agentgym.plugins.packs.coding.functions import Fault
from agentgym.plugins.packs.coding.projects import Function, Module, Project
from agentgym.plugins.packs.coding.wording import PHRASES
from agentgym.plugins.packs.wording.grammar import Phrases, request


@dataclass(frozen=True)
class Broken:
    """A project in which one line of one function is wrong.

    Attributes:
        project: The project before its line was changed.
        wrong: The wrong line.
    """

    project: Project
    files: dict[str, str]
    module: Module
    function: Function
    fault: Fault
    right: str
    wrong: str


def seed_fault(scene: Scene, kind: str) -> Broken:
    """Create a project with one fault; ``kind`` is as in :class:`Fault`."""
    rng = scene.rng
    template, fault = rng.choice(functions.with_fault(kind, scene.split))
    while True:
        other = functions.pick(rng)
        templates = [template, other] if rng.random() < 0.5 else [other, template]
        project = projects.build(rng, scene.names, templates=templates, docs=True)
        module = project.modules[0]
        function = next(f for f in module.functions if f.template is template)
        right = function.fill(template.body, module.constant)
        wrong = function.fill(fault.body, module.constant)
        source = project.files[module.path]
        broken = source.replace(f"    {right}\n", f"    {wrong}\n")
        if other is not template and broken.count(wrong) == source.count(right) == 1:
            files = {**project.files, module.path: broken}
            files[module.test_path] = module.tests("all")
            return Broken(project, files, module, function, fault, right, wrong)


def _repair(kind: str) -> Callable[[Scene, Phrases], Draft]:
    def draft(scene: Scene, phrases: Phrases) -> Draft:
        broken = seed_fault(scene, kind)
        module = broken.module
        test = f"test_{broken.function.name}"
        if scene.rng.random() < 0.3:
            test = f"{module.test_path}::{test}"
        slots = {"package": module.package, "test": test}
        edit = {"path": module.path, "old": broken.wrong, "new": broken.right}
        return Draft(
            request(scene.rng, phrases, scene.split, slots),
            broken.files,
            (
                Step("run_tests", {"path": "tests"}, ({"path": module.test_path},)),
                Step("read_file", {"path": module.path}),
                Step("edit_file", edit),
                Step("run_tests", {"path": "tests"}, ({"path": module.test_path},)),
            ),
            ordered=False,
            expected={module.path: broken.project.files[module.path]},
            hidden={m.path: m.values() for m in broken.project.modules},
        )

    return draft


FAMILIES = tuple(
    Family(f"repair_{kind}", 3, PHRASES["repair"], _repair(kind))
    for kind in ("operator", "condition", "value")
)
