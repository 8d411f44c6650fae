"""Tasks: determined by their seed, evenly mixed, and true to their split."""

import ast
import keyword
import os
import subprocess
import sys
from collections import Counter

import pytest

from agentgym.core.task import Split, Task
from agentgym.errors import UsageError
from agentgym.packs.coding import checks
from agentgym.packs.coding.families import FAMILIES
from agentgym.packs.coding.functions import TEMPLATES
from agentgym.packs.coding.names import NAMES
from agentgym.packs.coding.scenario import ROLE, RULES, CodingScenario
from tests.some import some

PROGRAM = """
import hashlib
from agentgym.core.task import Split
from agentgym.packs.coding.scenario import CodingScenario
tasks = CodingScenario().tasks(Split.TEST, 7, 60, levels=(1, 2, 3))
text = "".join(task.model_dump_json() for task in tasks)
print(hashlib.sha256(text.encode()).hexdigest())
"""


@pytest.mark.slow
def test_the_same_seed_gives_the_same_tasks_in_every_process() -> None:
    printed = {
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            check=True,
            text=True,
        ).stdout
        for seed in ("0", "1")
    }
    assert len(printed) == 1


def test_fewer_tasks_are_the_first_of_more(scenario: CodingScenario) -> None:
    assert scenario.tasks(Split.TRAIN, 1, 10) == scenario.tasks(Split.TRAIN, 1, 50)[:10]


def test_another_seed_gives_other_tasks(scenario: CodingScenario) -> None:
    one = {task.instruction for task in scenario.tasks(Split.TEST, 1, 100)}
    other = {task.instruction for task in scenario.tasks(Split.TEST, 2, 100)}
    assert len(one & other) < 20


@pytest.mark.parametrize("split", list(Split))
def test_families_come_in_turn(scenario: CodingScenario, split: Split) -> None:
    levels = (1, 2, 3) if split is Split.TRAIN else (1, 2)
    families = [family for family in FAMILIES if family.level in levels]
    tasks = scenario.tasks(split, 0, 3 * len(families))
    assert set(Counter(task.family for task in tasks).values()) == {3}
    assert {task.level for task in tasks} == set(levels)
    assert len({task.id for task in tasks}) == len(tasks)


def test_level_3_is_about_15_percent_of_training(scenario: CodingScenario) -> None:
    tasks = scenario.tasks(Split.TRAIN, 0, 19 * 5)
    assert 0.1 < sum(task.level == 3 for task in tasks) / len(tasks) < 0.2


def test_levels_can_be_asked_for(scenario: CodingScenario) -> None:
    assert {t.level for t in scenario.tasks(Split.TEST, 0, 9, levels=(3,))} == {3}
    with pytest.raises(UsageError, match=r"not \(4,\)"):
        scenario.tasks(Split.TEST, 0, 1, levels=(4,))


def test_held_out_sets(scenario: CodingScenario) -> None:
    sets = scenario.held_out(0, 90)
    assert list(sets) == ["held-out", "level 3", "out-of-vocabulary"]
    assert [len(tasks) for tasks in sets.values()] == [90, 15, 15]
    assert {t.split for t in sets["held-out"]} == {Split.TEST}
    assert {t.level for t in sets["held-out"]} == {1, 2}


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
def test_a_request_fits_in_a_line(scenario: CodingScenario) -> None:
    for task in some(every_task(scenario)):
        assert "{" not in task.instruction
        assert "  " not in task.instruction
        assert "\n" not in task.instruction
        assert len(task.instruction) < 160
        assert task.instruction[-1] in ".?"


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


@pytest.mark.slow
def test_formatting_tasks_have_something_to_format(scenario: CodingScenario) -> None:
    tasks = scenario.tasks(Split.TRAIN, 2, 19 * 20)
    for task in some(tasks):
        for path in task.goal["formatted"]:
            text = task.initial_state["files"][path]
            assert checks.formatted(text) != text
            assert checks.meaning(checks.formatted(text)) == checks.meaning(text)


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


def test_names_can_be_python_names() -> None:
    for names in some(NAMES.values()):
        for word in names.words():
            assert word.isidentifier()
            assert not keyword.iskeyword(word)


def test_what_the_agent_is_told_is_short(scenario: CodingScenario) -> None:
    assert scenario.system_prompt() == f"{ROLE} {RULES}"
    assert len(scenario.system_prompt().split()) <= 70
    names = [spec.name for spec in scenario.tools()]
    assert names == [
        "list_files",
        "read_file",
        "search_code",
        "edit_file",
        "run_tests",
        "run_script",
        "lint",
        "format_file",
    ]
    assert all(spec.description.count(".") == 1 for spec in scenario.tools())
