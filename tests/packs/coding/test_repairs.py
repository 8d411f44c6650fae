"""What counts as a repair: the right values, and everything else as it was."""

from typing import Any

import pytest

from agentgym.core.task import Task
from agentgym.packs.coding import execution
from agentgym.packs.coding.projects import Module, other_arguments
from agentgym.packs.coding.scenario import CodingScenario
from agentgym.sandbox import Sandbox
from recipes.nano.coding_oracle import solve
from tests.packs.conftest import play, task_of
from tests.some import some

from .conftest import every_fault

SCENARIO = CodingScenario()


def repair_of(kind: str, right: str) -> tuple[Task, dict[str, str]]:
    """Return a task whose right line, in ``p``, ``q`` and ``K``, is ``right``."""
    for index in range(1_000):
        task = task_of(SCENARIO, f"repair_{kind}", index)
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
    _, reward = await play(scenario, task, calls, environment=environment)
    assert not environment.books.errors
    return reward.success, reward.value


async def test_another_body_with_a_helper_and_an_import_is_a_repair(
    scenario: CodingScenario,
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
    success, _ = await judge(scenario, task, *edits)
    assert success


async def test_a_repair_passes_the_visible_tests_too(scenario: CodingScenario) -> None:
    task, edit = repair_of("condition", "return p > 0 and q > 0")
    names = generic(task, edit)[1]
    new = f"return {names['p']} > 1 and {names['q']} > 1"
    success, value = await judge(scenario, task, {**edit, "new": new})
    assert not success
    assert value < 0.45


async def test_a_repair_leaves_the_rest_as_it_was(scenario: CodingScenario) -> None:
    task, edit = repair_of("operator", "return p + K")
    files = task.initial_state["files"]
    other = {**edit, "new": edit["new"].replace("return ", "return 0 + ")}
    assert (await judge(scenario, task, other))[0]
    script = next(path for path in files if "/" not in path)
    module = next(p for p in files if p.endswith(".py") and p != edit["path"])
    assert not module.startswith("tests/")
    for path in (script, module):
        first, *_ = files[path].splitlines()
        emptied = {"path": path, "old": files[path], "new": ""}
        assert not (await judge(scenario, task, other, emptied))[0]
        comment = {"path": path, "old": first, "new": f"{first}  # as it was"}
        assert (await judge(scenario, task, other, comment))[0]


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
