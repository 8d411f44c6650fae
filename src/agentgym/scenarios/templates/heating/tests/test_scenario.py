"""Test that the pack passes the tripwires, and that its rules hold."""

import asyncio
from pathlib import Path

from agentgym import Split
from agentgym.evaluate.baselines import Call, play
from agentgym.evaluate.check import check_scenario
from agentgym.scenarios.registry import get_scenario

PACK = str(Path(__file__).parents[1])


def test_passes_every_tripwire() -> None:
    """Run the tripwires of `agentgym scenarios check`."""
    findings = check_scenario(PACK, tasks=20)
    assert [f"{f.name}: {f.why}" for f in findings if f.status == "fail"] == []


def test_too_warm_is_no_success() -> None:
    """An episode with a broken rule fails, even if all is well in the end."""
    scenario = get_scenario(PACK)
    [task] = scenario.tasks(Split.TRAIN, seed=0, count=1)
    hot = Call("set_temperature", {"room": task.goal["room"], "degrees": 30})
    needed = scenario.needed_calls(task) or []
    [right] = [Call(call.tool, dict(call.arguments)) for call in needed]
    assert (asyncio.run(play(scenario, task, [right])))[1].success
    assert not (asyncio.run(play(scenario, task, [hot, right])))[1].success
