"""What a dead worker had asked for reaches the gateway late, and harms nothing."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from agentgym.core.trajectory import RolloutStatus, Trajectory
from agentgym.rollout.gateway.gateway import Gateway
from agentgym.rollout.runner import RolloutRequest, Runner
from agentgym.rollout.store.records import NewEvent, RolloutState
from agentgym.rollout.store.store import Store
from agentgym.rollout.workers.pool import WorkerDeath, WorkerPool, WorkerSpec
from tests.rollout.fake_policy import FakePolicy
from tests.rollout.sessions import requests

REWARD = {
    "value": 0.5,
    "reason": None,
    "score": {"value": 0.5, "success": True},
    "duration_s": 0.1,
}
DONE = {"state": "succeeded", "events": [{"event_type": "reward", "data": REWARD}]}
FAILED = {"state": "failed", "reason": {"kind": "crash"}}


class Workers:
    """Workers that the test plays, over HTTP, and the runner that waits for them."""

    def __init__(self, store: Store, gateway: Gateway, folder: Path) -> None:
        key = {"Authorization": f"Bearer {gateway.api_key}"}
        self.api = httpx.Client(base_url=gateway.url, headers=key, timeout=30)
        self.runner = Runner(store, scenario="coding", max_attempts=2)
        spec = WorkerSpec(
            worker="w",
            gateway=gateway.url,
            api_key=gateway.api_key,
            model="fake",
            scenario="coding",
            framework="native",
        )
        self._pool = WorkerPool(  # never started
            spec, count=1, log=folder / "log", on_death=self.runner.worker_died
        )
        self._wanted: list[RolloutRequest] = []
        self._found: list[Trajectory] = []
        self._thread = threading.Thread(target=self._run, daemon=True)

    def begin(self, count: int) -> None:
        """Let the runner run some rollouts."""
        self._wanted = requests(count)
        self._thread.start()

    def end(self) -> list[Trajectory]:
        """Return what the runner returned."""
        self._thread.join(20)
        assert len(self._found) == len(self._wanted)
        return self._found

    def claim(self, worker: str, n: int = 1, wait_s: float = 20) -> list[str]:
        """Return the paths of the attempts that a worker was handed."""
        body = {"worker": worker, "n": n, "wait_s": wait_s}
        answer = self.api.post("/api/rollouts/claim", json=body)
        return [
            f"/api/rollouts/{one['rollout_id']}/attempt/"
            f"{one['status']['last_attempt_id']}"
            for one in answer.raise_for_status().json()
        ]

    def finish(self, path: str, report: dict[str, object]) -> None:
        """Report the end of an attempt."""
        self.api.post(f"{path}/finish", json=report).raise_for_status()

    def die(self, worker: str, blamed: str | None = None) -> None:
        """Let the runner know that a worker is dead."""
        self.runner.worker_died(WorkerDeath(worker, blamed, "killed"))

    def _run(self) -> None:
        self._found = self.runner.run(self._wanted, self._pool, lambda _: None)


@contextmanager
def playing(folder: Path, store: Store | None = None) -> Iterator[Workers]:
    with store or Store() as opened, Gateway(opened, policy=FakePolicy()) as gateway:
        workers = Workers(opened, gateway, folder)
        with workers.api:
            yield workers


@pytest.mark.slow
def test_a_claim_that_outlives_its_worker_is_handed_nothing(tmp_path: Path) -> None:
    with playing(tmp_path) as workers:
        workers.die("dead")
        workers.begin(1)
        assert workers.claim("dead", wait_s=0.5) == []
        [path] = workers.claim("living")
        workers.finish(path, DONE)
        [found] = workers.end()
    assert found.reward == 0.5
    assert found.attempt == 0


def test_an_end_that_outlives_its_worker_counts(tmp_path: Path) -> None:
    with playing(tmp_path) as workers:
        workers.begin(2)
        first = workers.claim("dead")
        first += workers.claim("dead")
        workers.die("dead")
        workers.finish(first[0], DONE)
        [again] = workers.claim("living")  # only the other one is tried again
        workers.finish(again, DONE)
        found = workers.end()
    assert [t.attempt for t in found] == [0, 1]
    assert [t.status for t in found] == [RolloutStatus.SUCCEEDED] * 2


@pytest.mark.slow
def test_a_failure_that_outlives_its_worker_is_tried_again_once(tmp_path: Path) -> None:
    with playing(tmp_path) as workers:
        workers.begin(2)
        paths = workers.claim("dead") + workers.claim("busy")
        workers.die("dead")
        workers.finish(paths[0], FAILED)
        [again] = workers.claim("living")
        workers.finish(paths[1], DONE)
        assert workers.claim("idle", wait_s=1.5) == []  # the living one goes on
        workers.finish(again, DONE)
        found = workers.end()
    assert sorted(t.attempt for t in found) == [0, 1]


class Racing(Store):
    """A store in which a dead worker's first rollout ends at the last moment."""

    def retire(self, worker: str) -> list[str]:
        held = super().retire(worker)
        event = NewEvent(event_type="reward", data=REWARD)
        self.finish(held[0], "0", state=RolloutState.SUCCEEDED, events=[event])
        return held


@pytest.mark.parametrize("is_known", [True, False])
def test_a_rollout_that_ends_as_its_worker_dies_holds_up_no_other(
    tmp_path: Path, is_known: bool
) -> None:
    with playing(tmp_path, Racing()) as workers:
        workers.begin(3)
        paths = [path for _ in range(3) for path in workers.claim("dead")]
        workers.die("dead", paths[0].split("/")[3] if is_known else None)
        for _ in paths[1:]:
            [again] = workers.claim("living")
            workers.finish(again, DONE)
        found = workers.end()
    assert sorted(t.attempt for t in found) == [0, 1, 1]
    assert {t.reward for t in found} == {0.5}
