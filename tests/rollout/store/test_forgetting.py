"""What leaves the store's memory, what a client's DELETE takes, and what stays."""

import gc
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from agentgym.core.trajectory import Reason
from agentgym.errors import RolloutNotFoundError, StoreError
from agentgym.rollout.store.records import (
    NewEvent,
    NewRollout,
    RecordedEvent,
    RolloutState,
    StatusChange,
)
from agentgym.rollout.store.store import LiveRollout, Store
from tests.rollout.recording import record, recorded_by

REWARD = NewEvent(event_type="reward", data={"value": 0.5})


def run(store: Store, *ids: str) -> None:
    """Bring rollouts to their end, each with a model call and a reward."""
    store.create_rollouts([NewRollout(rollout_id=i, input={"task": i}) for i in ids])
    store.claim("w", len(ids))
    for rollout_id in ids:
        store.begin_call(rollout_id, "0", "agent")
        recorded_by(store, rollout_id, record(rollout_id))
        store.finish(rollout_id, "0", state=RolloutState.SUCCEEDED, events=[REWARD])


def in_memory(kind: type) -> int:
    gc.collect()
    return sum(type(thing) is kind for thing in gc.get_objects())


@pytest.mark.slow
def test_ended_rollouts_and_all_events_leave_memory(tmp_path: Path) -> None:
    events, live = in_memory(RecordedEvent), in_memory(LiveRollout)
    with Store(tmp_path / "rollouts.db") as store:
        for number in range(40):
            run(store, *(f"{number}-{i}" for i in range(25)))
            store.flush()
        run(store, "last")
        assert in_memory(LiveRollout) - live <= 65
        store.create_rollouts([NewRollout(rollout_id="open", input={})])
        store.claim("w")
        for _ in range(1000):
            recorded_by(store, "open", record())
        assert in_memory(RecordedEvent) <= events
        assert len(store.events("open")) == 1000
        assert len(store.model_calls("0-0")) == 1


@pytest.mark.slow
def test_what_nobody_claims_is_forgotten_too(tmp_path: Path) -> None:
    """A controller elsewhere claims nothing: it patches."""
    before = in_memory(LiveRollout)
    with Store(tmp_path / "rollouts.db") as store:
        for number in range(300):
            name = f"r{number}"
            store.create_rollouts([NewRollout(rollout_id=name, input={})])
            for state in (RolloutState.RUNNING, RolloutState.SUCCEEDED):
                store.patch(name, StatusChange(state=state))
            store.flush()
        assert store.claim("w", 1000) == []
        assert in_memory(LiveRollout) - before <= 65


def test_a_cursor_survives_deletions_and_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "rollouts.db"
    with Store(path) as store:
        run(store, "a", "b", "c")
        _, cursor, _ = store.list_terminal(0, 10)
        for rollout_id in "abc":
            store.hide(rollout_id)
        assert store.list_terminal(0, 2) == ([], 2, 3)  # goes on behind what is gone
        assert store.list_terminal(2, 2) == ([], 3, 3)
    with Store(path) as store:
        assert store.list_terminal(0, 10) == ([], 3, 3)
        run(store, "d")
        found, after, total = store.list_terminal(cursor, 10)
        assert ([r.rollout_id for r in found], after, total) == (["d"], 4, 4)
    with Store(path) as store:
        assert store.list_terminal(after, 10) == ([], 4, 4)


def test_a_clients_delete_forgets_nothing_that_we_report(tmp_path: Path) -> None:
    path = tmp_path / "rollouts.db"
    with Store(path) as store:
        run(store, "a")
        before = store.get("a"), store.events("a")
        store.hide("a")
        store.hide("a")
        store.hide("unknown")
        assert (store.get("a"), store.events("a")) == before
        assert store.list_rollouts(list(RolloutState)) == []
        with pytest.raises(RolloutNotFoundError):
            store.check_shown("a")
        with pytest.raises(RolloutNotFoundError):
            store.begin_call("a", "0", "agent")
    with Store(path) as store:
        assert (store.get("a"), store.events("a")) == before
        with pytest.raises(RolloutNotFoundError):
            store.check_shown("a")


def test_who_waits_for_a_rollout_that_a_client_deletes_sees_it_end() -> None:
    with Store() as store:
        store.create_rollouts([NewRollout(rollout_id=i, input={}) for i in "ab"])
        store.claim("w")
        for rollout_id in "ab":
            store.hide(rollout_id)
        assert store.wait_terminal("ab", 30) == {"a", "b"}
        assert store.get("a").status.state is RolloutState.FAILED
        assert "deleted" in str(store.get("a").status.error_message)
        assert store.claim("w") == []
        assert store.list_terminal(0, 9) == ([], 0, 0)


def test_the_id_of_what_a_client_deleted_is_free_and_the_old_one_is_kept(
    tmp_path: Path,
) -> None:
    path = tmp_path / "rollouts.db"
    with Store(path) as store:
        run(store, "a")
        store.hide("a")
        [made] = store.create_rollouts([NewRollout(rollout_id="a", input="new")])
        assert (made.input, store.events("a")) == ("new", [])
        store.check_shown("a")
    with Store(path) as store:
        assert store.get("a").input == "new"
        assert len(store.claim("w", 9)) == 1
    with closing(sqlite3.connect(path)) as file:
        [(old,)] = file.execute(
            "SELECT rollout_id FROM rollouts WHERE state = 'succeeded'"
        )
        [(count,)] = file.execute(
            "SELECT count(*) FROM events WHERE rollout_id = ?", (old,)
        )
    assert old.startswith("a~")
    assert count == 2


@pytest.mark.slow
def test_reports_of_a_store_that_fails_are_not_lost_in_memory(tmp_path: Path) -> None:
    """What SQLite does not have yet stays in memory."""
    store = Store(tmp_path / "rollouts.db", disk_wait_s=0.1)
    store.flush()
    store._database._connection.execute("PRAGMA max_page_count=1")
    run(store, *(f"r{i}" for i in range(100)))
    assert store.get("r0").status.state is RolloutState.SUCCEEDED
    store.fail("r0", Reason(kind="late"))
    with pytest.raises(StoreError, match="full"):
        store.close()
