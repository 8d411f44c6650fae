"""The gateway for trainers elsewhere, with workers of ours."""

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from agentgym.core.trajectory import RolloutStatus
from agentgym.errors import StoreError
from agentgym.rollout.record import to_trajectory
from agentgym.rollout.store.records import RolloutState
from agentgym.rollout.store.store import Store
from tests.rollout.foreign import queue, service, tasks


@pytest.mark.slow
def test_rollouts_of_a_trainer_elsewhere_are_run(tmp_path: Path) -> None:
    with service(tmp_path) as (served, api):
        chosen = tasks(3)
        names = queue(api, chosen)
        assert served.store.wait_terminal(names, 90) == set(names)
        for name, task in zip(names, chosen, strict=True):
            events = api.get(
                f"/api/rollouts/{name}/events", params={"format": "triplet"}
            ).json()
            kinds = [event["event_type"] for event in events]
            assert kinds.count("model_request") == 2
            assert kinds[-1] == "reward"
            [first, second] = [e for e in events if e["event_type"] == "model_request"]
            assert first["data"]["response_token_ids"] == [7, 8]
            assert first["data"]["response_log_probs"] == [-0.5, -0.5]
            assert len(second["data"]["prompt_token_ids"]) > 2
            store = served.store
            attempts = {a: store.events(name, a) for a in store.attempts(name)}
            made = to_trajectory(store.get(name), attempts)
            assert made.status is not RolloutStatus.DROPPED
            assert (made.task_id, made.family) == (task.id, task.family)
            assert (made.scenario, made.group) == ("", task.id)
            assert [call.name for call in made.get_tool_calls()] == ["list_files"]
            assert made.reward == events[-1]["data"]["value"]
        assert served.failure is None


@pytest.mark.slow
def test_an_input_that_is_no_task_fails_at_once(tmp_path: Path) -> None:
    with service(tmp_path) as (served, api):
        body = [{"rollout_id": "r", "input": {"task": "nonsense"}}]
        api.post("/api/rollouts", json=body).raise_for_status()
        assert served.store.wait_terminal(["r"], 90)
        status = served.store.get("r").status
        assert status.state is RolloutState.FAILED
        assert (status.error_message or "").startswith("no task: the rollout's input")


@pytest.mark.slow
def test_a_killed_workers_rollout_gets_another_attempt(tmp_path: Path) -> None:
    asked, may_answer = threading.Event(), threading.Event()

    def hold() -> None:
        asked.set()
        may_answer.wait(60)

    with service(tmp_path, before=hold, rollout_timeout_s=120.0) as (served, api):
        [name] = queue(api, tasks(1))
        assert asked.wait(60)
        assert served._pool is not None
        [worker] = served._pool.pids
        os.kill(worker, signal.SIGKILL)
        may_answer.set()
        assert served.store.wait_terminal([name], 90)
        status = served.store.get(name).status
        assert (status.state, status.last_attempt_id) == (RolloutState.SUCCEEDED, "1")
        [given_up] = [
            event.data["reason"]["kind"]
            for event in served.store.events(name, "0")
            if event.event_type == "attempt_failed"
        ]
        assert given_up == "its worker died"


@pytest.mark.slow
def test_what_an_earlier_process_was_running_is_queued_again(tmp_path: Path) -> None:
    with service(tmp_path, workers=0) as (served, api):
        [name] = queue(api, tasks(1))
        served.store.claim("worker-0.0")
    with Store(tmp_path / "rollouts.db") as store:
        assert store.get(name).status.state is RolloutState.RUNNING
    with service(tmp_path) as (served, _):
        assert served.store.wait_terminal([name], 90)
        status = served.store.get(name).status
        assert (status.state, status.last_attempt_id) == (RolloutState.SUCCEEDED, "1")


@pytest.mark.slow
def test_a_store_that_cannot_be_written_ends_it(tmp_path: Path) -> None:
    with (
        pytest.raises(StoreError, match="the disk is full"),
        service(tmp_path, workers=0) as (served, api),
    ):
        served.store.flush()
        served.store._database._connection.execute("PRAGMA max_page_count=1")
        queue(api, tasks(20))
        while not served.troubles:
            time.sleep(0.01)
        assert "the disk is full" in served.troubles[0]
        assert served.failure is None
        served.store.give_up()
        while served.failure is None:
            time.sleep(0.01)
        assert "the disk is full" in served.failure
