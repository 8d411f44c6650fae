"""Contract 4, the store's part: what was flushed survives kill -9, whole."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

from agentgym.rollout.store.records import RolloutState
from agentgym.rollout.store.store import Store
from tests.rollout.kill_me import recorded

KILLS = 6


def test_contract_4_kill_9_loses_nothing_that_was_flushed(tmp_path: Path) -> None:
    generator = random.Random(0)
    for number in range(KILLS):
        path = tmp_path / f"{number}.db"
        flushed = fill_and_kill(path, after_s=generator.uniform(0.0, 0.3))
        with Store(path) as store:
            for step in range(flushed + 1):
                for i in range(4):
                    check_whole(store, f"{step}-{i}", step)
            check_nothing_is_half_there(store)


def fill_and_kill(path: Path, *, after_s: float) -> int:
    """Return the last step that the killed process said it had flushed."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.rollout.kill_me", str(path)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    ) as process:
        assert process.stdout is not None
        said = process.stdout.readline()
        assert said, "the process ended before its first flush"
        time.sleep(after_s)
        process.send_signal(signal.SIGKILL)
        said += process.stdout.read()
    complete = said[: said.rindex(b"\n")].split()
    return int(complete[-1])


def check_whole(store: Store, rollout_id: str, step: int) -> None:
    assert store.get(rollout_id).status.state is RolloutState.SUCCEEDED
    expected = [recorded(step, turn).to_model_call() for turn in range(3)]
    assert store.model_calls(rollout_id) == expected
    reward = store.events(rollout_id)[-1]
    assert (reward.event_type, reward.data) == ("reward", {"value": step})


def check_nothing_is_half_there(store: Store) -> None:
    """A rollout has ended if and only if its reward is there."""
    for rollout in store.list_rollouts(list(RolloutState), limit=-1):
        has_ended = rollout.status.state is RolloutState.SUCCEEDED
        types = [e.event_type for e in store.events(rollout.rollout_id)]
        assert (types[-2:] == ["tool_call", "reward"]) == has_ended
        if not has_ended:
            assert set(types) <= {"model_request"}
