"""Tasks: determined by their seed, evenly mixed, and true to their split."""

import ast

import pytest

from agentgym.core.task import Split, Task
from agentgym.packs.coding import checks
from agentgym.packs.coding.functions import TEMPLATES
from agentgym.packs.coding.scenario import CodingScenario
from tests.some import some


def every_task(scenario: CodingScenario) -> list[Task]:
    return [
        task
        for split in Split
        for task in scenario.tasks(split, 11, 380, levels=(1, 2, 3))
    ]


@pytest.mark.slow
def test_projects_are_small_and_well_formed(scenario: CodingScenario) -> None:
    for task in some(every_task(scenario)):
        files = task.initial_state["files"]
        assert len(files) <= 6
        for path, text in files.items():
            ast.parse(text)
            assert len(text) <= 480, (task.id, path)
        edits = [s for s in task.goal["plan"] if s["tool"] == "edit_file"]
        for args in (edit["args"] for edit in edits):
            assert files[args["path"]].count(args["old"]) == 1
            assert args["path"] in task.goal["expected"]


@pytest.mark.slow
def test_generated_sources_are_clean_unless_meant_not_to_be(
    scenario: CodingScenario,
) -> None:
    blemished = {"format_file", "format_then_lint", "lint"}
    for task in some(scenario.tasks(Split.TRAIN, 2, 57)):
        if task.family in blemished:
            continue
        for path, text in task.initial_state["files"].items():
            assert checks.problems(text) == (), (task.id, path)
            assert checks.formatted(text) == text


def test_faults_of_the_splits_differ() -> None:
    for template in TEMPLATES:
        bodies = [fault.body for fault in template.faults]
        assert len(set(bodies)) == len(bodies)
        assert template.body not in bodies
    for kind in ("operator", "condition", "value"):
        for split in (Split.TRAIN, Split.VALIDATION, Split.TEST):
            assert any(
                fault.kind == kind and fault.split is split
                for template in TEMPLATES
                for fault in template.faults
            )
