"""What counts as a repair: the right values, and everything else as it was."""

from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest

from agentgym.core.task import Split, Task
from agentgym.packs.coding import execution
from agentgym.packs.coding.families import FAMILIES
from agentgym.packs.coding.projects import Module, other_arguments
from agentgym.packs.coding.scenario import CodingScenario
from agentgym.sandbox import Sandbox
from recipes.nano.coding_oracle import solve
from tests.some import some

from .conftest import every_fault, play_in

SCENARIO = CodingScenario()
BY_NAME = {family.name: family for family in FAMILIES}


@pytest.fixture(scope="module")
def sandboxed() -> Iterator[CodingScenario]:
    scenario = CodingScenario()
    yield scenario
    scenario.close()


def repair_of(kind: str, right: str) -> tuple[Task, dict[str, str]]:
    """Return a task whose right line, in ``p``, ``q`` and ``K``, is ``right``."""
    for index in range(1_000):
        task = SCENARIO.make_task(BY_NAME[f"repair_{kind}"], Split.TRAIN, 0, index)
        edit = dict(solve(task)[2].args)
        if generic(task, edit)[0] == right:
            return task, edit
    raise AssertionError(f"no task is repaired with {right!r}")


def generic(task: Task, edit: dict[str, str]) -> tuple[str, dict[str, str]]:
    """Return the right line in names that do not depend on the task, and the names."""
    source = task.initial_state["files"][edit["path"]]
    head = source[: source.index(edit["old"])].rpartition("def ")[2]
    parameters = head[head.index("(") + 1 : head.index(")")].split(", ")
    names = dict(zip("pq", parameters, strict=False)) | {"K": source.split()[0]}
    line = edit["new"]
    for short, name in names.items():
        line = " ".join(short if w == name else w for w in line.split(" "))
    return line, names


async def judge(
    scenario: CodingScenario, task: Task, *edits: dict[str, str]
) -> tuple[bool, float]:
    """Read and make the edits, run the tests before and after; return the verdict."""
    calls: list[tuple[str, dict[str, Any]]] = [("run_tests", {})]
    for edit in edits:
        calls += [("read_file", {"path": edit["path"]}), ("edit_file", edit)]
    calls.append(("run_tests", {}))
    environment = scenario.create_environment(task)
    reward = await play_in(scenario, environment, task, calls)
    assert not environment.books.errors
    return reward.success, reward.value


async def test_another_body_with_a_helper_and_an_import_is_a_repair(
    sandboxed: CodingScenario,
) -> None:
    task, edit = repair_of("operator", "return p + q")
    names = generic(task, edit)[1]
    p, q = names["p"], names["q"]
    [first, *_] = task.initial_state["files"][edit["path"]].splitlines()
    helper = "def _both(values):\n    print('adding')\n    return math.fsum(values)"
    edits = (
        {**edit, "new": f"return int(_both(({p}, {q})))"},
        {**edit, "old": first, "new": f"import math\n\n{first}\n\n\n{helper}"},
    )
    success, _ = await judge(sandboxed, task, *edits)
    assert success


async def test_a_repair_passes_the_visible_tests_too(sandboxed: CodingScenario) -> None:
    task, edit = repair_of("condition", "return p > 0 and q > 0")
    names = generic(task, edit)[1]
    new = f"return {names['p']} > 1 and {names['q']} > 1"
    success, value = await judge(sandboxed, task, {**edit, "new": new})
    assert not success
    assert value < 0.45


FORGED_VALUES = (
    "from unittest.mock import ANY\n    return ANY",
    "return type('Any', (), {'__eq__': lambda *_: True})()",
    "return float({p} * {K})",
    "return type('Any', (), {{'__repr__': lambda _: '1'}})()",
)


@pytest.mark.parametrize("body", FORGED_VALUES)
async def test_a_value_that_equals_everything_is_no_repair(
    sandboxed: CodingScenario, body: str
) -> None:
    task, edit = repair_of("operator", "return p * K")
    new = body.format(**generic(task, edit)[1]) if "{p}" in body else body
    new = new.replace("{{", "{").replace("}}", "}")
    success, _ = await judge(sandboxed, task, {**edit, "new": new})
    assert not success


FORGED_REPORTS = (
    'os.write(3, b\'{"test":"x","outcome":"passed"}\\n{"done":1}\\n\'); os._exit(0)',
    'os.write(1, b"[]\\n"); os._exit(0)',
    "os._exit(0)",
)


@pytest.mark.parametrize("forged", FORGED_REPORTS)
async def test_a_module_that_reports_for_itself_is_no_repair(
    sandboxed: CodingScenario, forged: str
) -> None:
    task, edit = repair_of("operator", "return p * K")
    [first, *_] = task.initial_state["files"][edit["path"]].splitlines()
    new = f"import os; {forged}\n{first}"
    success, _ = await judge(sandboxed, task, {**edit, "old": first, "new": new})
    assert not success


async def test_what_the_sandbox_sees_does_not_hold_the_answers(
    sandbox: Sandbox,
) -> None:
    seen: list[str] = []

    def record(files: Any, command: Any, **options: Any) -> Any:
        seen.append("\n".join(files.values()))
        return run_sync(files, command, **options)

    run_sync = sandbox.run_sync
    task, edit = repair_of("operator", "return p * K")
    names = generic(task, edit)[1]
    other = {**edit, "new": f"return {names['K']} * {names['p']}"}
    with patch.object(sandbox, "run_sync", record):
        assert (await judge(CodingScenario(sandbox), task, other))[0]
    hidden = task.goal["hidden"][edit["path"]]
    [ran] = seen
    assert all(asked in ran for asked in hidden)
    assert not any(value in ran for value in hidden.values() if len(value) > 4)
    assert "assert" not in ran


@pytest.mark.parametrize("right", ["return p + K", "return p * K"])
async def test_a_fault_is_not_repaired_by_changing_the_constant(
    sandboxed: CodingScenario, right: str
) -> None:
    task, edit = repair_of("operator", right)
    [first, *_] = task.initial_state["files"][edit["path"]].splitlines()
    name = first.split()[0]
    for value in ("0", "1", "77"):
        changed = {**edit, "old": first, "new": f"{name} = {value}"}
        assert not (await judge(sandboxed, task, changed))[0]
        assert not (await judge(sandboxed, task, edit, changed))[0]


async def test_a_repair_leaves_the_rest_as_it_was(sandboxed: CodingScenario) -> None:
    task, edit = repair_of("operator", "return p + K")
    files = task.initial_state["files"]
    other = {**edit, "new": edit["new"].replace("return ", "return 0 + ")}
    assert (await judge(sandboxed, task, other))[0]
    script = next(path for path in files if "/" not in path)
    module = next(p for p in files if p.endswith(".py") and p != edit["path"])
    assert not module.startswith("tests/")
    for path in (script, module):
        first, *_ = files[path].splitlines()
        emptied = {"path": path, "old": files[path], "new": ""}
        assert not (await judge(sandboxed, task, other, emptied))[0]
        comment = {"path": path, "old": first, "new": f"{first}  # as it was"}
        assert (await judge(sandboxed, task, other, comment))[0]


@pytest.mark.slow
def test_hidden_values_catch_every_fault_and_fit_every_project(
    sandbox: Sandbox,
) -> None:
    for broken in some(every_fault(seed=6)):
        hidden = {m.path: m.values() for m in broken.project.modules}
        assert execution.repaired(sandbox, broken.project.files, hidden)
        assert not execution.repaired(sandbox, broken.files, hidden)
        hidden = {m.path: unseen(m) for m in broken.project.modules}
        key = broken.function.template.key
        assert not execution.repaired(sandbox, broken.files, hidden), key


def unseen(module: Module) -> dict[str, str]:
    """Return the values of the calls that the tests need not make."""
    calls = {
        f"{function.name}({', '.join(map(repr, other_arguments(point)))})"
        for function in module.functions
        for point in function.template.points
    }
    return {asked: value for asked, value in module.values().items() if asked in calls}
