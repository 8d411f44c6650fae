"""Create tasks of level 1, which a single call solves."""

import re

from agentgym.plugins.packs.coding import layout, projects
from agentgym.plugins.packs.coding.families.base import (
    Draft,
    Family,
    Scene,
    Step,
    definition,
    pick_module,
)
from agentgym.plugins.packs.coding.projects import Project
from agentgym.plugins.packs.coding.wording import references
from agentgym.plugins.packs.wording.grammar import Phrases, request

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
        texts[path] = layout.with_unused_import(scene.rng, texts[path])
    return Draft(
        _ask(scene, phrases, file=reference), texts, (Step("lint", {"path": path}),)
    )


def _format_file(scene: Scene, phrases: Phrases) -> Draft:
    project = _project(scene)
    texts = dict(project.files)
    module = pick_module(scene, project)
    texts[module.path] = layout.unformatted(scene.rng, texts[module.path])
    reference = references.module(scene.rng, scene.split, project.package, module.name)
    return Draft(
        _ask(scene, phrases, file=reference),
        texts,
        (Step("format_file", {"path": module.path}),),
        formatted=(module.path,),
    )


FAMILIES = tuple(
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
)
