"""Rewards that are none drop their rollout with a reason; the others go on."""

import re
from pathlib import Path

import pytest

from agentgym import TrainingConfig
from agentgym.core.task import Split
from agentgym.core.trajectory import RolloutStatus
from agentgym.engines.scripted import Reply, ScriptedPolicy
from agentgym.rollout.runner import RolloutRequest
from agentgym.rollout.session import RolloutSession
from agentgym.scenarios.new_pack import write_pack
from agentgym.scenarios.registry import get_scenario

FAULTS = {
    0: ("Reward(0.0, False)", ""),
    1: ("1 / 0", "ZeroDivisionError: division by zero"),
    2: (
        "Reward(float('nan'), False)",
        "nan as its value, which is not a finite number",
    ),
    3: ("Reward(7.0, True)", r"7.0, outside reward_range \(0, 1\)"),
    4: ("Reward(0.0, False, {'x': float('inf')})", "inf as its part 'x'"),
    5: ("0.5", "0.5, which is no Reward"),
    6: ("Reward(0.2, False)", ""),
    7: (
        "Reward(float(len(trajectory.model_calls[0].response_ids)), False)",
        "a reward sees model calls without response_ids.*Use token_counts",
    ),
    8: ("Reward(0.1 if trajectory.stats().response_tokens else 0.9, False)", ""),
}


@pytest.fixture
def pack(tmp_path: Path) -> Path:
    folder = write_pack("odd", tmp_path)
    table = ", ".join(f"lambda: {code}" for code, _ in FAULTS.values())
    source = folder / "scenario.py"
    head, found, tail = source.read_text().partition("        assert isinstance(env")
    number = "int(task.id.rpartition('/')[2])"
    source.write_text(f"{head}        return [{table}][{number}]()\n{found}{tail}")
    return folder


def test_each_bad_reward_is_dropped_alone(pack: Path, tmp_path: Path) -> None:
    config = TrainingConfig.create(
        scenario=str(pack), framework="native", max_attempts=1
    )
    tasks = get_scenario(str(pack)).tasks(Split.TRAIN, 0, len(FAULTS))
    requests = [
        RolloutRequest(task.id.replace("/", "-"), task, True, task.id, 1)
        for task in tasks
    ]
    policy = ScriptedPolicy(lambda _: Reply(content="Done."))
    with RolloutSession(config, policy, tmp_path, 1) as session:
        done = session.run(requests, lambda _: None)
    for (_, reason), trajectory in zip(FAULTS.values(), done, strict=True):
        if reason:
            assert trajectory.status is RolloutStatus.DROPPED
            assert trajectory.reward is None
            assert re.search(f"(?i){reason}", str(trajectory.reason)), trajectory.reason
        else:
            assert trajectory.status is RolloutStatus.FAILED  # scored: no success
            assert trajectory.scenario == "odd"
    assert [t.reward for t in done if t.reward is not None] == [0.0, 0.2, 0.1]
