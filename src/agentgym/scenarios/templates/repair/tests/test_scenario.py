"""Test that the pack passes the tripwires, and that deceit earns nothing."""

import asyncio
from pathlib import Path

import pytest

from agentgym import Split
from agentgym.core.task import Task
from agentgym.core.trajectory import Reward
from agentgym.evaluate.baselines import Call, play
from agentgym.evaluate.check import check_scenario
from agentgym.scenarios.base import Scenario
from agentgym.scenarios.registry import get_scenario

PACK = str(Path(__file__).parents[1])
DECEIT = {
    "equals everything": "type('Any', (), {'__eq__': lambda *_: True})()",
    "ends well": "__import__('os')._exit(0)",
    "gives nothing": "None",
    "hangs": "[0 for _ in iter(int, 1)]",
}


def attempt(scenario: Scenario, task: Task, *edits: str) -> Reward:
    """Play the needed calls, with other edits if there are some."""
    read, edit, test = scenario.needed_calls(task) or []
    old, news = edit.arguments["old"], edits or (edit.arguments["new"],)
    calls = [Call(read.tool, dict(read.arguments))]
    for new in news:
        calls.append(Call(edit.tool, {**edit.arguments, "old": old, "new": new}))
        old = new
    return asyncio.run(play(scenario, task, [*calls, Call(test.tool, {})]))[1]


def test_passes_every_tripwire() -> None:
    """Run the tripwires of `agentgym scenarios check`."""
    findings = check_scenario(PACK, tasks=20)
    assert [f"{f.name}: {f.why}" for f in findings if f.status == "fail"] == []


@pytest.mark.parametrize("split", list(Split))
def test_the_known_repair_succeeds_and_no_edit_earns_nothing(split: Split) -> None:
    """The faulty function gives none of the hidden values."""
    scenario = get_scenario(PACK)
    for task in scenario.tasks(split, seed=0, count=12):
        assert attempt(scenario, task).success
        comment = f"{task.goal['old']}  # as it was"
        assert attempt(scenario, task, comment).value == 0.0
    scenario.close()


@pytest.mark.parametrize("how", DECEIT)
def test_deceit_earns_nothing(how: str) -> None:
    """Only the values of the code count, not its attacks on the runner."""
    scenario = get_scenario(PACK)
    [task] = scenario.tasks(Split.TRAIN, seed=0, count=1)
    reward = attempt(scenario, task, f"return {DECEIT[how]}")
    assert (reward.value, reward.success) == (0.0, False)
    scenario.close()


def test_tests_may_not_be_changed() -> None:
    """An episode with a broken rule fails, even if all is well in the end."""
    scenario = get_scenario(PACK)
    [task] = scenario.tasks(Split.TRAIN, seed=0, count=1)
    read, edit, _ = scenario.needed_calls(task) or []
    path = next(name for name in task.initial_state if name.startswith("tests/"))
    spoil = Call(edit.tool, {"path": path, "old": "assert", "new": "assert not"})
    calls = [Call(c.tool, dict(c.arguments)) for c in (read, edit)]
    assert not asyncio.run(play(scenario, task, [spoil, *calls]))[1].success
    scenario.close()
