"""The families (kinds of task), by level.

Level 1: a single call. Level 2: several calls, under the rules of the system prompt.
Level 3: find and repair the fault that makes tests fail.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from agentgym.packs.kit.phrases import Forms, Phrases, read_pools
from agentgym.packs.kit.tasks import Draft, Family, Scene, Step

from . import functions, projects
from .functions import Fault, Template
from .names import Names
from .projects import Function, Module, Project, unformatted, with_unused_import

FORMS = ("module", "tests", "tests_of", "script", "folder", "root")
"""Sections of the text files with phrases for files; the others have requests."""

_POOLS = read_pools(Path(__file__).parent / "wording")
REFERENCES: dict[str, Forms] = {name: _POOLS[name] for name in FORMS}
PHRASES = {name: Phrases(p) for name, p in _POOLS.items() if name not in FORMS}
"""Phrases of the requests, by family (kind of task)."""


def refer(scene: Scene[Names], form: str, **slots: str) -> str:
    """Return a random phrase for a file or folder; ``form`` is one of ``FORMS``."""
    return scene.say(REFERENCES[form], **slots)


def refer_to_module(scene: Scene[Names], module: Module) -> str:
    """Return a random phrase for a module."""
    return refer(scene, "module", p=module.package, m=module.name)


ProjectScene = Scene[Names]
ProjectFamily = Family[Names]

_DEFINITION = re.compile(r"\b(defined|defines|sets?|written)\b")
_OCCURRENCES = re.compile(
    r"\b(all|each|every|calls?|comes?|contains?|have|lines|mention(s|ed)?|places|refer"
    r"|turns?|use[ds]?|using|with)\b"
)
"""Words in requests that ask for all occurrences of a name."""


def draft(
    instruction: str,
    files: Mapping[str, str],
    *plan: Step,
    ordered: bool = True,
    expected: Mapping[str, str] | None = None,
    formatted: Sequence[str] = (),
    hidden: Mapping[str, Mapping[str, str]] | None = None,
) -> Draft:
    """Return the content of a task.

    Args:
        instruction: The user's request.
        files: Text of each file of the project at the start, by path.
        plan: The calls of the shortest solution.
        ordered: Whether a success must make the calls of ``plan`` in order. If False,
            only the final state of the project counts.
        expected: By path, a right final text of each file that must change. Another
            text with the same syntax tree is right too.
        formatted: Paths of the files that must be formatted.
        hidden: Expressions to evaluate in each module, by the module's path; each with
            the ``repr`` of its right value. The agent does not see them. If there are
            any, all code that gives these values is right, not only ``expected``.
    """
    goal: dict[str, Any] = {
        "plan": [
            {"tool": s.tool, "args": s.args, "others": list(s.others)} for s in plan
        ],
        "ordered": ordered,
        "expected": expected or {},
        "formatted": list(formatted),
        "hidden": hidden or {},
    }
    return Draft(instruction, {"files": files}, goal)


def build(scene: ProjectScene) -> tuple[Project, Module]:
    """Create a random project; return it and one of its modules."""
    project = projects.build(scene.rng, scene.names)
    return project, scene.rng.choice(project.modules)


def _any_file(scene: ProjectScene) -> tuple[Project, str, str]:
    """Return a random project, the path of a file, and a phrase that refers to it."""
    project, module = build(scene)
    kind = scene.rng.random()
    if kind < 0.6:
        return project, module.path, refer_to_module(scene, module)
    if kind < 0.85:
        return project, module.test_path, refer(scene, "tests", m=module.name)
    return project, project.script, _refer_to_script(scene, project)


def _refer_to_script(scene: ProjectScene, project: Project) -> str:
    return refer(scene, "script", s=project.script.removesuffix(".py"))


def _any_name(scene: ProjectScene, module: Module) -> str:
    return scene.rng.choice((module.constant, *(f.name for f in module.functions)))


def _definition(name: str) -> tuple[dict[str, str], ...]:
    """Return two ways to call ``search_code`` that find the definition of a name."""
    return {"query": f"def {name}"}, {"query": f"{name} ="}


def _list_files(scene: ProjectScene) -> Draft:
    project = projects.build(scene.rng, scene.names)
    folder = scene.rng.choice((".", ".", "tests", project.package))
    said = refer(scene, "root" if folder == "." else "folder", d=folder)
    step = Step("list_files", {"path": folder})
    return draft(scene.ask(dir=said), project.files, step)


def _read_file(scene: ProjectScene) -> Draft:
    project, path, said = _any_file(scene)
    step = Step("read_file", {"path": path})
    return draft(scene.ask(file=said), project.files, step)


def _search_code(scene: ProjectScene) -> Draft:
    project, module = build(scene)
    name = _any_name(scene, module)
    instruction = scene.ask(name=name)
    enough = _DEFINITION.search(instruction) or not _OCCURRENCES.search(instruction)
    step = Step("search_code", {"query": name}, _definition(name) if enough else ())
    return draft(instruction, project.files, step)


def _run_all_tests(scene: ProjectScene) -> Draft:
    project = projects.build(scene.rng, scene.names)
    step = Step("run_tests", {"path": "tests"})
    return draft(scene.ask(), project.files, step)


def _run_test_file(scene: ProjectScene) -> Draft:
    project, module = build(scene)
    step = Step("run_tests", {"path": module.test_path})
    said = refer(scene, "tests_of", m=module.name)
    return draft(scene.ask(tests=said), project.files, step)


def _lint(scene: ProjectScene) -> Draft:
    project, path, said = _any_file(scene)
    files = dict(project.files)
    if scene.rng.random() < 0.6:
        files[path] = with_unused_import(scene.rng, files[path])
    return draft(scene.ask(file=said), files, Step("lint", {"path": path}))


def _format_file(scene: ProjectScene) -> Draft:
    project, module = build(scene)
    text = unformatted(scene.rng, project.files[module.path])
    return draft(
        scene.ask(file=refer_to_module(scene, module)),
        {**project.files, module.path: text},
        Step("format_file", {"path": module.path}),
        formatted=[module.path],
    )


def _run_tests(module: Module) -> Step:
    """Return the call that runs all tests; to run only the module's is right too."""
    return Step("run_tests", {"path": "tests"}, ({"path": module.test_path},))


def _edit_plan(module: Module, old: str, new: str) -> tuple[Step, ...]:
    """Return the calls that read a module, edit it, and run the tests."""
    return (
        Step("read_file", {"path": module.path}),
        Step("edit_file", {"path": module.path, "old": old, "new": new}),
        _run_tests(module),
    )


def _edit(
    scene: ProjectScene, project: Project, lines: tuple[str, str], **slots: str
) -> Draft:
    """Create a task to replace ``lines[0]`` by ``lines[1]`` in the first module."""
    module = project.modules[0]
    return draft(
        scene.ask(file=refer_to_module(scene, module), **slots),
        project.files,
        *_edit_plan(module, *lines),
        ordered=False,
        expected={module.path: project.files[module.path].replace(*lines)},
    )


def _other_number(scene: ProjectScene, number: int) -> int:
    drawn = scene.rng.randint(2, 98)
    return drawn + 1 if drawn >= number else drawn


def _change_constant(scene: ProjectScene) -> Draft:
    project = projects.build(scene.rng, scene.names)
    module = project.modules[0]
    name, old, new = module.constant, module.value, _other_number(scene, module.value)
    lines = (f"{name} = {old}", f"{name} = {new}")
    return _edit(scene, project, lines, name=name, old=str(old), new=str(new))


def _with_special(scene: ProjectScene, special: Template) -> tuple[Project, Function]:
    """Create a project with a function made from ``special``; return both."""
    other = functions.pick(scene.rng)
    templates = [special, other] if scene.rng.random() < 0.5 else [other, special]
    project = projects.build(scene.rng, scene.names, templates=templates)
    made = project.modules[0].functions
    return project, next(f for f in made if f.template is special)


def _change_default(scene: ProjectScene) -> Draft:
    project, function = _with_special(scene, functions.DEFAULT)
    old = function.default or 0
    new = _other_number(scene, old)
    lines = (function.signature(), replace(function, default=new).signature())
    slots = {"name": function.name, "param": function.parameters[-1]}
    return _edit(scene, project, lines, **slots, old=str(old), new=str(new))


def _change_text(scene: ProjectScene) -> Draft:
    project, function = _with_special(scene, functions.TEXT)
    noun = scene.rng.choice(scene.names.nouns)
    old = new = function.text
    while new == old:
        new = projects.text_for(scene.rng, scene.names, noun)
    lines = (f'return "{old}"', f'return "{new}"')
    return _edit(scene, project, lines, name=function.name, old=old, new=new)


def _find_then_read(scene: ProjectScene) -> Draft:
    project, module = build(scene)
    name = _any_name(scene, module)
    search = Step("search_code", {"query": name}, _definition(name))
    read = Step("read_file", {"path": module.path})
    return draft(scene.ask(name=name), project.files, search, read)


def _test_then_read(scene: ProjectScene) -> Draft:
    broken = seed_fault(scene, scene.rng.choice(functions.KINDS))
    test = Step("run_tests", {"path": "tests"})
    read = Step("read_file", {"path": broken.module.path})
    return draft(scene.ask(), broken.files, test, read)


def _format_then_lint(scene: ProjectScene) -> Draft:
    project, module = build(scene)
    source = project.files[module.path]
    if scene.rng.random() < 0.5:
        source = with_unused_import(scene.rng, source)
    source = unformatted(scene.rng, source)
    return draft(
        scene.ask(file=refer_to_module(scene, module)),
        {**project.files, module.path: source},
        Step("format_file", {"path": module.path}),
        Step("lint", {"path": module.path}),
        formatted=[module.path],
    )


def _change_test(scene: ProjectScene) -> Draft:
    project, module = build(scene)
    name = scene.rng.choice(module.functions).name
    said = refer(scene, "tests", m=module.name)
    new = str(scene.rng.randint(2, 99))
    instruction = scene.ask(file=said, test=f"test_{name}", name=name, new=new)
    read = Step("read_file", {"path": module.test_path})
    return draft(instruction, project.files, read)


def _run_script(scene: ProjectScene) -> Draft:
    project = projects.build(scene.rng, scene.names)
    return _script(scene, project, "", script=_refer_to_script(scene, project))


def _run_script_with(scene: ProjectScene) -> Draft:
    project = projects.build(scene.rng, scene.names)
    rng = scene.rng
    values = [str(rng.randint(2, 99)) for _ in range(rng.randint(1, 2))]
    if rng.random() < 0.3:
        values[-1] = rng.choice(scene.names.adjectives)
    said = rng.choice((" and ", " ")).join(values)
    script = _refer_to_script(scene, project)
    return _script(scene, project, " ".join(values), script=script, args=said)


def _script(scene: ProjectScene, project: Project, args: str, /, **slots: str) -> Draft:
    """Create a task in which the agent must read the project's script, then run it."""
    read = Step("read_file", {"path": project.script})
    run = Step("run_script", {"path": project.script, "args": args})
    return draft(scene.ask(**slots), project.files, read, run)


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


def seed_fault(scene: ProjectScene, kind: str) -> Broken:
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


def _repair(kind: str) -> Callable[[ProjectScene], Draft]:
    def repair(scene: ProjectScene) -> Draft:
        broken = seed_fault(scene, kind)
        module = broken.module
        test = f"test_{broken.function.name}"
        if scene.rng.random() < 0.3:
            test = f"{module.test_path}::{test}"
        return draft(
            scene.ask(package=module.package, test=test),
            broken.files,
            _run_tests(module),
            *_edit_plan(module, broken.wrong, broken.right),
            ordered=False,
            expected={module.path: broken.project.files[module.path]},
            hidden={m.path: m.values() for m in broken.project.modules},
        )

    return repair


def _families(
    level: int, *drafts: Callable[[ProjectScene], Draft]
) -> list[ProjectFamily]:
    """Return families that are named like their functions, as are their phrases."""
    names = [draft.__name__.removeprefix("_") for draft in drafts]
    return [
        ProjectFamily(name, level, PHRASES[name], draft)
        for name, draft in zip(names, drafts, strict=True)
    ]


FAMILIES: Sequence[ProjectFamily] = (
    *_families(1, _list_files, _read_file, _search_code, _run_all_tests),
    *_families(1, _run_test_file, _lint, _format_file),
    *_families(2, _run_script, _run_script_with, _change_constant, _change_default),
    *_families(2, _change_text, _find_then_read, _test_then_read, _format_then_lint),
    *_families(2, _change_test),
    *(
        ProjectFamily(f"repair_{kind}", 3, PHRASES["repair"], _repair(kind))
        for kind in functions.KINDS
    ),
)
