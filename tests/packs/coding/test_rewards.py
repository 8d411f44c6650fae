"""The reward: the outcome first; nothing for idling, flooding or cheating."""

import re
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from agentgym.core.task import Task
from agentgym.core.trajectory import Reward
from agentgym.packs.coding.scenario import CodingScenario
from recipes.nano.coding_oracle import solve
from tests.packs.conftest import Calls
from tests.packs.conftest import play as play_calls
from tests.packs.conftest import task_of as find_task

task_of = partial(find_task, CodingScenario())
Play = Callable[[Task, Calls], Awaitable[Reward]]
EDITS = ("change_constant", "change_default", "change_text")


@pytest.fixture
def play(scenario: CodingScenario) -> Play:
    async def run(task: Task, calls: Calls) -> Reward:
        return (await play_calls(scenario, task, calls))[1]

    return run


def plan_of(task: Task) -> list[tuple[str, dict[str, Any]]]:
    return [(step.tool, dict(step.args)) for step in solve(task)]


async def test_the_right_tool_with_wrong_arguments_earns_a_little(play: Play) -> None:
    task = task_of("read_file")
    right = task.goal["plan"][0]["args"]["path"]
    other = next(path for path in task.initial_state["files"] if path != right)
    reward = await play(task, [("read_file", {"path": other})])
    assert not reward.success
    assert 0.1 <= reward.value <= 0.2
    assert (reward.right_tool, reward.right_arguments) == (1.0, 0.0)
    assert (await play(task, [("read_file", {"path": "none.py"})])).value >= 0.1
    assert (await play(task, [("lint", {"path": right})])).value == 0


async def test_paths_and_arguments_are_compared_by_meaning(play: Play) -> None:
    task = task_of("read_file")
    path = task.goal["plan"][0]["args"]["path"]
    assert (await play(task, [("read_file", {"path": f"./{path}"})])).success
    task = task_of("run_script_with")
    args = dict(task.goal["plan"][1]["args"])
    args["args"] = "  ".join(f"'{part}'" for part in args["args"].split())
    read = ("read_file", {"path": args["path"]})
    assert (await play(task, [read, ("run_script", args)])).success
    task = task_of("search_code")
    query = task.goal["plan"][0]["args"]["query"]
    assert (await play(task, [("search_code", {"query": f" {query} "})])).success
    assert not (await play(task, [("search_code", {"query": query[0]})])).success


async def test_many_looks_make_a_success_cheaper_and_guessing_ends_it(
    play: Play,
) -> None:
    for family in ("read_file", "change_constant", "repair_value"):
        task = task_of(family)
        looks = [("list_files", {})] * 3 + [("search_code", {"query": "def"})] * 3
        reward = await play(task, [*looks, *plan_of(task)])
        assert reward.success
        assert 0.5 <= reward.value < 0.9
        longer = await play(task, [*looks, *looks, *plan_of(task)])
        assert 0.5 <= longer.value < reward.value
    task = task_of("read_file")
    files = sorted(task.initial_state["files"])
    every = [("read_file", {"path": path}) for path in files]
    guessed = await play(task, every)
    assert (guessed.success, guessed.right_arguments) == (False, 1.0)
    twice = await play(task, [*plan_of(task) * 4])
    assert twice.success


@pytest.mark.parametrize("family", EDITS)
async def test_edits_are_judged_by_what_the_code_means(family: str, play: Play) -> None:
    task = task_of(family)
    read, (_, edit), run = plan_of(task)
    path, old, new = edit["path"], edit["old"], edit["new"]
    comment = {"path": path, "old": old, "new": f"{new}  # as asked"}
    assert (await play(task, [read, ("edit_file", comment), run])).success
    for wrong in (old.replace("=", "= 1 +", 1).replace("return", "return 1 and"),):
        attempt = {"path": path, "old": old, "new": wrong}
        reward = await play(task, [read, ("edit_file", attempt), run])
        assert not reward.success
        assert reward.value < 0.45


@pytest.mark.parametrize("family", [*EDITS, "repair_value"])
async def test_an_edit_without_tests_after_it_is_no_success(
    family: str, play: Play
) -> None:
    task = task_of(family)
    *before, _ = plan_of(task)
    reward = await play(task, before)
    assert not reward.success
    assert reward.parts["untested"] < 0


@pytest.mark.parametrize("family", [*EDITS, "repair_value"])
async def test_a_broken_rule_is_no_success_even_if_mended(
    family: str, play: Play
) -> None:
    task = task_of(family)
    plan = plan_of(task)
    edit = next(call for call in plan if call[0] == "edit_file")
    reward = await play(task, [edit, *plan])
    assert not reward.success
    assert reward.parts["rules"] == -0.2
    assert 0 < reward.value < 0.5


async def test_a_change_elsewhere_is_damage(play: Play) -> None:
    task = task_of("change_constant")
    script = next(p for p in task.initial_state["files"] if "/" not in p)
    vandalism = [
        ("read_file", {"path": script}),
        ("edit_file", {"path": script, "old": "import sys", "new": "import os"}),
    ]
    reward = await play(task, [*vandalism, *plan_of(task)])
    assert not reward.success
    assert reward.parts["damage"] < 0


async def test_asked_to_change_a_test_the_agent_only_reads_it(play: Play) -> None:
    task = task_of("change_test")
    [read] = plan_of(task)
    path = read[1]["path"]
    assert (await play(task, [read])).success
    text = task.initial_state["files"][path]
    edit = ("edit_file", {"path": path, "old": text[:20], "new": "x"})
    assert (await play(task, [read, edit])).value < 0.4
    assert not (await play(task, [read, edit])).success
    assert (await play(task, [edit])).value <= -0.2 + 0.05


async def test_sequences_need_both_calls_in_order(play: Play) -> None:
    for family in ("find_then_read", "test_then_read", "format_then_lint"):
        task = task_of(family)
        first, second = plan_of(task)
        assert (await play(task, [first, second])).success
        assert not (await play(task, [second, first])).success
        assert not (await play(task, [second])).success


async def test_a_definition_may_be_searched_for_unless_all_places_are_asked_for(
    play: Play,
) -> None:
    verdicts: dict[str, set[bool]] = {"where is": set(), "uses": set()}
    for index in range(120):
        task = task_of("search_code", index)
        name = task.goal["plan"][0]["args"]["query"]
        query = f"{name} =" if name.isupper() else f"def {name}"
        asked = task.instruction.lower()
        place = re.search(rf"(defin|implement|liv|sets {name.lower()}|is set)", asked)
        everywhere = name.islower() and re.search(r"\b(uses|mentions) of\b", asked)
        if place or everywhere:
            kind = "where is" if place else "uses"
            reward = await play(task, [("search_code", {"query": query})])
            verdicts[kind].add(reward.success)
    assert verdicts == {"where is": {True}, "uses": {False}}
