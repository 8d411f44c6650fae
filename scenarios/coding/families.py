"""The families (kinds of task), by level.

Level 1: a single call. Level 2: several calls, under the rules of the system prompt.
Level 3: find and repair the fault that makes tests fail.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from agentgym.packs.kit.phrases import Phrases, request

from . import functions, projects, references
from .drafts import (
    Draft,
    Family,
    Scene,
    Step,
    definition,
    pick_module,
)
from .functions import Fault, Template
from .projects import (
    Function,
    Module,
    Project,
    unformatted,
    with_unused_import,
)
from .references import PHRASES

_DEFINITION = re.compile(r"\b(defined|defines|sets?|written)\b")
_OCCURRENCES = re.compile(
    r"\b(all|each|every|calls?|comes?|contains?|have|lines|mention(s|ed)?|places|refer"
    r"|turns?|use[ds]?|using|with)\b"
)
"""Words in requests that ask for all occurrences of a name."""


def _project(scene: Scene) -> Project:
    return projects.build(scene.rng, scene.names)


def _ask(scene: Scene, phrases: Phrases, **slots: str) -> str:
    return request(scene.rng, phrases, scene.split, slots)


def _any_file(scene: Scene, project: Project) -> tuple[str, str]:
    """Return the path of a random file of a project, and a phrase that refers to it."""
    rng, split = scene.rng, scene.split
    module = pick_module(scene, project)
    kind = rng.random()
    if kind < 0.6:
        text = references.module(rng, split, module.package, module.name)
        return module.path, text
    if kind < 0.85:
        return module.test_path, references.test_file(rng, split, module.name)
    return project.script, references.script(rng, split, project.script)


def _list_files(scene: Scene, phrases: Phrases) -> Draft:
    project = _project(scene)
    folder = scene.rng.choice((".", ".", "tests", project.package))
    reference = references.folder(scene.rng, scene.split, folder)
    return Draft(
        _ask(scene, phrases, dir=reference),
        project.files,
        (Step("list_files", {"path": folder}),),
    )


def _read_file(scene: Scene, phrases: Phrases) -> Draft:
    project = _project(scene)
    path, reference = _any_file(scene, project)
    return Draft(
        _ask(scene, phrases, file=reference),
        project.files,
        (Step("read_file", {"path": path}),),
    )


def _search_code(scene: Scene, phrases: Phrases) -> Draft:
    project = _project(scene)
    module = pick_module(scene, project)
    name = scene.rng.choice((module.constant, *(f.name for f in module.functions)))
    instruction = _ask(scene, phrases, name=name)
    enough = _DEFINITION.search(instruction) or not _OCCURRENCES.search(instruction)
    others = definition(name) if enough else ()
    step = Step("search_code", {"query": name}, others)
    return Draft(instruction, project.files, (step,))


def _run_all_tests(scene: Scene, phrases: Phrases) -> Draft:
    project = _project(scene)
    step = Step("run_tests", {"path": "tests"})
    return Draft(_ask(scene, phrases), project.files, (step,))


def _run_test_file(scene: Scene, phrases: Phrases) -> Draft:
    project = _project(scene)
    module = pick_module(scene, project)
    reference = references.tests_of(scene.rng, scene.split, module.name)
    return Draft(
        _ask(scene, phrases, tests=reference),
        project.files,
        (Step("run_tests", {"path": module.test_path}),),
    )


def _lint(scene: Scene, phrases: Phrases) -> Draft:
    project = _project(scene)
    texts = dict(project.files)
    path, reference = _any_file(scene, project)
    if scene.rng.random() < 0.6:
        texts[path] = with_unused_import(scene.rng, texts[path])
    return Draft(
        _ask(scene, phrases, file=reference), texts, (Step("lint", {"path": path}),)
    )


def _format_file(scene: Scene, phrases: Phrases) -> Draft:
    project = _project(scene)
    texts = dict(project.files)
    module = pick_module(scene, project)
    texts[module.path] = unformatted(scene.rng, texts[module.path])
    reference = references.module(scene.rng, scene.split, project.package, module.name)
    return Draft(
        _ask(scene, phrases, file=reference),
        texts,
        (Step("format_file", {"path": module.path}),),
        formatted=(module.path,),
    )


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
        source = with_unused_import(scene.rng, source)
    files[module.path] = unformatted(scene.rng, source)
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


FAMILIES: tuple[Family, ...] = (
    *(
        Family.of(1, draft)
        for draft in (
            _list_files,
            _read_file,
            _search_code,
            _run_all_tests,
            _run_test_file,
            _lint,
            _format_file,
        )
    ),
    *(
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
    ),
    *(
        Family(f"repair_{kind}", 3, PHRASES["repair"], _repair(kind))
        for kind in ("operator", "condition", "value")
    ),
)
