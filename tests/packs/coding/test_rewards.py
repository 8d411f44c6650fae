"""The reward: the outcome first; nothing for idling, flooding or cheating."""

import random
import re
import statistics
from typing import Any

import pytest

from agentgym.core.task import Split, Task
from agentgym.packs.coding.families import FAMILIES
from agentgym.packs.coding.scenario import CodingScenario
from agentgym.sandbox import RunTests, Sandbox
from recipes.nano.coding_oracle import demonstrate, solve
from tests.some import some

from .conftest import Calls, Play, every_fault

BY_NAME = {family.name: family for family in FAMILIES}
EDITS = ("change_constant", "change_default", "change_text")


def task_of(family: str, index: int = 0, split: Split = Split.TRAIN) -> Task:
    return CodingScenario().make_task(BY_NAME[family], split, 0, index)


def plan_of(task: Task) -> list[tuple[str, dict[str, Any]]]:
    return [(step.tool, dict(step.args)) for step in solve(task)]


def everything(task: Task, rng: random.Random) -> Calls:
    """Call every tool, on one file, as if the request had not been read."""
    files = sorted(task.initial_state["files"])
    sources = [path for path in files if "/" in path and not path.startswith("tests/")]
    path = rng.choice(sources)
    script = next(path for path in files if "/" not in path)
    words = task.instruction.rstrip(".?").split()
    return [
        ("list_files", {}),
        ("read_file", {"path": path}),
        ("search_code", {"query": rng.choice(words)}),
        ("edit_file", {"path": path, "old": "TODO", "new": ""}),
        ("run_tests", {}),
        ("read_file", {"path": script}),
        ("run_script", {"path": script}),
        ("lint", {"path": path}),
        ("format_file", {"path": path}),
    ]


def everything_everywhere(task: Task) -> Calls:
    """Call every tool on every file."""
    calls: list[tuple[str, dict[str, Any]]] = [("list_files", {}), ("run_tests", {})]
    for path in sorted(task.initial_state["files"]):
        for tool in ("read_file", "lint", "format_file"):
            calls.append((tool, {"path": path}))
        if path.startswith("tests/"):
            calls.append(("run_tests", {"path": path}))
        if "/" not in path:
            calls.append(("run_script", {"path": path}))
    for word in task.instruction.rstrip(".?").split():
        calls.append(("search_code", {"query": word}))
    return calls


@pytest.mark.slow
@pytest.mark.parametrize("split", list(Split))
async def test_the_oracle_always_succeeds(split: Split, sandbox: Sandbox) -> None:
    tasks = CodingScenario().tasks(split, 21, 19 * 12, levels=(1, 2, 3))
    for task in some(tasks):
        reward = (await demonstrate(task, sandbox)).reward
        assert reward.success, task.id
        assert reward.value == 1.0
        assert reward.right_tool == reward.right_arguments == 1.0


@pytest.mark.parametrize("split", list(Split))
@pytest.mark.parametrize("family", BY_NAME)
async def test_doing_nothing_earns_nothing(
    family: str, split: Split, play: Play
) -> None:
    reward = await play(task_of(family, split=split), [])
    assert not reward.success
    assert -0.05 <= reward.value <= 0
    assert reward.right_tool == reward.right_arguments == 0


@pytest.mark.slow
@pytest.mark.parametrize(
    "split", [Split.TEST, pytest.param(Split.TRAIN, marks=pytest.mark.sweep)]
)
@pytest.mark.parametrize("family", BY_NAME)
async def test_calling_everything_earns_nothing(
    family: str, split: Split, play: Play
) -> None:
    rng = random.Random(0)
    values = []
    for index in range(20):
        task = task_of(family, index, split)
        reward = await play(task, everything(task, rng))
        assert not reward.success
        values.append(reward.value)
    assert abs(statistics.mean(values)) <= 0.05
    for index in range(3):
        task = task_of(family, index, split)
        reward = await play(task, everything_everywhere(task))
        assert not reward.success
        assert reward.value <= 0.05


@pytest.mark.parametrize("family", BY_NAME)
async def test_stopping_early_pays_less_than_the_next_step(
    family: str, play: Play
) -> None:
    task = task_of(family)
    plan = plan_of(task)
    values = [(await play(task, plan[:stop])).value for stop in range(len(plan) + 1)]
    assert values == sorted(values)
    assert len(set(values)) == len(values)
    assert values[-1] == 1.0
    assert values[-2] < 0.5


@pytest.mark.parametrize("family", BY_NAME)
async def test_a_failed_try_of_the_next_step_pays_more_than_stopping(
    family: str, play: Play
) -> None:
    task = task_of(family)
    plan = plan_of(task)
    for done, (tool, arguments) in enumerate(plan):
        wrong = [(tool, {**arguments, "nonsense": "x"})]
        before = (await play(task, plan[:done])).value
        assert (await play(task, plan[:done] + wrong)).value > before


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


async def test_failing_again_and_again_costs_each_time(play: Play) -> None:
    task = task_of("read_file")
    wrong = ("read_file", {"path": "none.py"})
    values = [(await play(task, [wrong] * times)).value for times in range(1, 4)]
    assert values == sorted(values, reverse=True)
    assert len(set(values)) == len(values)
    assert values[-1] < 0


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


async def test_an_extra_harmless_call_costs_little(play: Play) -> None:
    for family in ("read_file", "change_constant", "repair_value"):
        task = task_of(family)
        reward = await play(task, [("list_files", {}), *plan_of(task)])
        assert reward.success
        assert 0.9 <= reward.value < 1.0


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


async def test_other_correct_orders_are_accepted(play: Play) -> None:
    task = task_of("repair_operator")
    first_run, read, edit, last_run = plan_of(task)
    assert (await play(task, [read, edit, last_run])).success
    assert (await play(task, [read, first_run, edit, last_run])).success
    assert (await play(task, [read, read, first_run, edit, first_run])).success


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


async def test_editing_the_tests_to_pass_earns_nothing(play: Play) -> None:
    for index in range(5):
        task = task_of("repair_operator", index)
        tests = next(p for p in task.initial_state["files"] if p.startswith("tests/"))
        cheat = [
            ("run_tests", {}),
            ("read_file", {"path": tests}),
            ("edit_file", {"path": tests, "old": "    assert", "new": "    not"}),
            ("edit_file", {"path": tests, "old": "assert", "new": "assert True or"}),
            ("run_tests", {}),
        ]
        reward = await play(task, cheat)
        assert not reward.success
        assert reward.value <= 0


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


@pytest.mark.slow
async def test_tests_catch_every_fault_and_pass_every_project(
    sandbox: Sandbox,
) -> None:
    for broken in some(every_fault(seed=5)):
        for points in ("few", "all"):
            tests = {m.test_path: m.tests(points) for m in broken.project.modules}
            assert passes(sandbox, broken.project.files | tests)
            if points != "few":
                key = broken.function.template.key
                assert not passes(sandbox, broken.files | tests), key


def passes(sandbox: Sandbox, files: dict[str, str]) -> bool:
    return sandbox.run_sync(files, RunTests(("tests",))).ok


@pytest.mark.slow
async def test_a_repair_that_only_suits_the_visible_tests_fails(
    play: Play, sandbox: Sandbox
) -> None:
    for index in range(12):
        task = task_of("repair_value", index)
        run, read, (_, edit), again = plan_of(task)
        path, wrong = edit["path"], edit["old"]
        before = task.initial_state["files"][path].partition(wrong)[0]
        name, parameters = re.findall(r"def (\w+)\((.*)\):", before)[-1]
        tests = task.initial_state["files"][f"tests/test_{path.split('/')[1]}"]
        points = re.findall(rf"assert {name}\((.*?)\) (?:==|is) (.+)", tests)
        table = ", ".join(f"str(({point},)): {answer}" for point, answer in points)
        new = f"return {{{table}}}.get(str(({parameters},)))"
        cheat = ("edit_file", {"path": path, "old": wrong, "new": new})
        reward = await play(task, [run, read, cheat, again])
        assert not reward.success
        assert reward.value < 0.45
        files = {**task.initial_state["files"]}
        files[path] = files[path].replace(wrong, new)
        assert passes(sandbox, files), "the cheat should pass visible tests"


@pytest.mark.slow
async def test_rewards_stay_in_range_whatever_is_called(play: Play) -> None:
    rng = random.Random(9)
    scenario = CodingScenario()
    low, high = scenario.reward_range
    tasks = scenario.tasks(Split.TRAIN, 8, 190)
    for task in some(tasks):
        files = [*sorted(task.initial_state["files"]), "tests", "..", "none.py"]
        calls: list[tuple[str, dict[str, Any]]] = []
        for _ in range(rng.randint(0, 15)):
            tool = rng.choice(("read_file", "edit_file", "lint", "format_file", "nope"))
            arguments = {"path": rng.choice(files)}
            if tool == "edit_file":
                arguments |= {"old": "return", "new": "yield"}
            calls.append((tool, arguments))
        reward = await play(task, calls)
        assert low <= reward.value <= high
        assert sum(reward.parts.values()) == pytest.approx(reward.value)
        assert 0 <= (reward.right_tool or 0) <= 1
        assert 0 <= (reward.right_arguments or 0) <= 1


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


async def test_quotes_that_make_one_argument_of_two_change_the_call(play: Play) -> None:
    tasks = (task_of("run_script_with", index) for index in range(40))
    task = next(t for t in tasks if " " in t.goal["plan"][1]["args"]["args"])
    read, (tool, args) = plan_of(task)
    assert (await play(task, [read, (tool, args)])).success
    joined = {**args, "args": f"'{args['args']}'"}
    assert not (await play(task, [read, (tool, joined)])).success
    task = task_of("run_script")
    read, (tool, args) = plan_of(task)
    assert not (await play(task, [read, (tool, {**args, "args": "''"})])).success
