"""Create tasks of level 2: several calls, under the rules of the system prompt."""

from dataclasses import replace

from agentgym.plugins.packs.coding import functions, layout, projects
from agentgym.plugins.packs.coding.families.base import (
    Draft,
    Family,
    Scene,
    Step,
    definition,
    pick_module,
)
from agentgym.plugins.packs.coding.families.level3 import seed_fault
from agentgym.plugins.packs.coding.functions import Template
from agentgym.plugins.packs.coding.projects import Function, Module, Project
from agentgym.plugins.packs.coding.wording import references
from agentgym.plugins.packs.wording.grammar import Phrases, request


def edit_plan(module: Module, old: str, new: str) -> tuple[Step, ...]:
    """Return the calls that read a module, edit it, and run the tests."""
    return (
        Step("read_file", {"path": module.path}),
        Step("edit_file", {"path": module.path, "old": old, "new": new}),
        run_tests(module),
    )


def run_tests(module: Module) -> Step:
    """Return the call that runs all tests; to run only the module's is right too."""
    return Step("run_tests", {"path": "tests"}, ({"path": module.test_path},))


def _reference(scene: Scene, module: Module) -> str:
    return references.module(scene.rng, scene.split, module.package, module.name)


def _edit(
    scene: Scene,
    phrases: Phrases,
    project: Project,
    lines: tuple[str, str],
    slots: dict[str, str],
) -> Draft:
    """Create a task to replace ``lines[0]`` by ``lines[1]`` in the first module."""
    module = project.modules[0]
    source = project.files[module.path]
    slots = {"file": _reference(scene, module), **slots}
    return Draft(
        request(scene.rng, phrases, scene.split, slots),
        project.files,
        edit_plan(module, *lines),
        ordered=False,
        expected={module.path: source.replace(*lines)},
    )


def _other_number(scene: Scene, number: int) -> int:
    drawn = scene.rng.randint(2, 98)
    return drawn + 1 if drawn >= number else drawn


def _change_constant(scene: Scene, phrases: Phrases) -> Draft:
    project = projects.build(scene.rng, scene.names)
    module = project.modules[0]
    new = _other_number(scene, module.value)
    lines = (f"{module.constant} = {module.value}", f"{module.constant} = {new}")
    slots = {"name": module.constant, "old": str(module.value), "new": str(new)}
    return _edit(scene, phrases, project, lines, slots)


def _with_special(scene: Scene, special: Template) -> tuple[Project, Function]:
    """Create a project with a function made from ``special``; return both."""
    other = functions.pick(scene.rng)
    templates = [special, other] if scene.rng.random() < 0.5 else [other, special]
    project = projects.build(scene.rng, scene.names, templates=templates)
    made = project.modules[0].functions
    return project, next(f for f in made if f.template is special)


def _change_default(scene: Scene, phrases: Phrases) -> Draft:
    project, function = _with_special(scene, functions.DEFAULT)
    old = function.default or 0
    new = _other_number(scene, old)
    lines = (function.signature(), replace(function, default=new).signature())
    slots = {
        "name": function.name,
        "param": function.parameters[-1],
        "old": str(old),
        "new": str(new),
    }
    return _edit(scene, phrases, project, lines, slots)


def _change_text(scene: Scene, phrases: Phrases) -> Draft:
    project, function = _with_special(scene, functions.TEXT)
    noun = scene.rng.choice(scene.names.nouns)
    old = new = function.text
    while new == old:
        new = projects.text_for(scene.rng, scene.names, noun)
    lines = (f'return "{old}"', f'return "{new}"')
    slots = {"name": function.name, "old": old, "new": new}
    return _edit(scene, phrases, project, lines, slots)


def _find_then_read(scene: Scene, phrases: Phrases) -> Draft:
    project = projects.build(scene.rng, scene.names)
    module = pick_module(scene, project)
    name = scene.rng.choice((module.constant, *(f.name for f in module.functions)))
    return Draft(
        request(scene.rng, phrases, scene.split, {"name": name}),
        project.files,
        (
            Step("search_code", {"query": name}, definition(name)),
            Step("read_file", {"path": module.path}),
        ),
    )


def _test_then_read(scene: Scene, phrases: Phrases) -> Draft:
    kind = scene.rng.choice(("operator", "condition", "value"))
    broken = seed_fault(scene, kind)
    return Draft(
        request(scene.rng, phrases, scene.split, {}),
        broken.files,
        (
            Step("run_tests", {"path": "tests"}),
            Step("read_file", {"path": broken.module.path}),
        ),
    )


def _format_then_lint(scene: Scene, phrases: Phrases) -> Draft:
    project = projects.build(scene.rng, scene.names)
    module = pick_module(scene, project)
    files = dict(project.files)
    source = files[module.path]
    if scene.rng.random() < 0.5:
        source = layout.with_unused_import(scene.rng, source)
    files[module.path] = layout.unformatted(scene.rng, source)
    return Draft(
        request(scene.rng, phrases, scene.split, {"file": _reference(scene, module)}),
        files,
        (
            Step("format_file", {"path": module.path}),
            Step("lint", {"path": module.path}),
        ),
        formatted=(module.path,),
    )


def _change_test(scene: Scene, phrases: Phrases) -> Draft:
    project = projects.build(scene.rng, scene.names)
    module = pick_module(scene, project)
    function = scene.rng.choice(module.functions)
    slots = {
        "file": references.test_file(scene.rng, scene.split, module.name),
        "test": f"test_{function.name}",
        "name": function.name,
        "new": str(scene.rng.randint(2, 99)),
    }
    return Draft(
        request(scene.rng, phrases, scene.split, slots),
        project.files,
        (Step("read_file", {"path": module.test_path}),),
    )


def _run_script(scene: Scene, phrases: Phrases) -> Draft:
    project = projects.build(scene.rng, scene.names)
    reference = references.script(scene.rng, scene.split, project.script)
    return _script_draft(scene, phrases, project, "", {"script": reference})


def _run_script_with(scene: Scene, phrases: Phrases) -> Draft:
    project = projects.build(scene.rng, scene.names)
    rng = scene.rng
    values = [str(rng.randint(2, 99)) for _ in range(rng.randint(1, 2))]
    if rng.random() < 0.3:
        values[-1] = rng.choice(scene.names.adjectives)
    said = rng.choice((" and ", " ")).join(values)
    reference = references.script(rng, scene.split, project.script)
    slots = {"script": reference, "args": said}
    return _script_draft(scene, phrases, project, " ".join(values), slots)


def _script_draft(
    scene: Scene, phrases: Phrases, project: Project, args: str, slots: dict[str, str]
) -> Draft:
    """Create a task in which the agent must read the project's script, then run it."""
    return Draft(
        request(scene.rng, phrases, scene.split, slots),
        project.files,
        (
            Step("read_file", {"path": project.script}),
            Step("run_script", {"path": project.script, "args": args}),
        ),
    )


FAMILIES = tuple(
    Family.of(2, draft)
    for draft in (
        _run_script,
        _run_script_with,
        _change_constant,
        _change_default,
        _change_text,
        _find_then_read,
        _test_then_read,
        _format_then_lint,
        _change_test,
    )
)
