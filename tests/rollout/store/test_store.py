"""The store: lifecycle of rollouts, attempts, events, and what a restart keeps."""

import asyncio
import os
import sqlite3
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson
import pytest

from agentgym.core.trajectory import Reason
from agentgym.errors import (
    RolloutError,
    RolloutNotFoundError,
    RolloutStateError,
    StoreError,
)
from agentgym.plugins.lightning.schemas import triplet_bodies
from agentgym.rollout.store.database import SCHEMA_VERSION, Database
from agentgym.rollout.store.records import (
    ModelServer,
    NewEvent,
    NewRollout,
    RecordedCall,
    RolloutState,
    StatusChange,
)
from agentgym.rollout.store.store import Store
from tests.rollout.recording import record, recorded_by

REWARD = NewEvent(event_type="reward", data={"value": 0.5})


def create(store: Store, *ids: str, **fields: Any) -> None:
    store.create_rollouts(
        [NewRollout(rollout_id=i, input={"task": i}, **fields) for i in ids]
    )


def recorded(turn: int = 0, *, agent: str = "agent") -> RecordedCall:
    """Return call number ``turn`` of a conversation that grows by two messages."""
    messages = [
        {"role": "user", "content": f"message {i}"} for i in range(2 * turn + 1)
    ]
    return record(
        f"answer {turn}",
        agent=agent,
        version=turn,
        request={"messages": messages, "tools": [{"type": "function"}]},
        prompt_ids=list(range(100, 110 + 5 * turn)),
        response_ids=[turn, 70_000],
        logprobs=[-0.1, -0.25],
    )


def rewards(store: Store, rollout_id: str) -> list[Any]:
    events = store.events(rollout_id)
    return [e.data["value"] for e in events if e.event_type == "reward"]


def test_a_known_id_is_returned_unchanged() -> None:
    with Store() as store:
        create(store, "a")
        store.claim("w")
        [again] = store.create_rollouts([NewRollout(rollout_id="a", input="other")])
        assert again.input == {"task": "a"}
        assert again.status.state is RolloutState.RUNNING
        assert store.claim("w") == []


def test_claims_hand_out_each_rollout_once_in_order() -> None:
    with Store() as store:
        create(store, *"abcde")
        first, second = store.claim("w1", 2), store.claim("w2", 9)
        assert [r.rollout_id for r in first] == ["a", "b"]
        assert [r.rollout_id for r in second] == ["c", "d", "e"]
        assert {r.status.last_attempt_id for r in first + second} == {"0"}
        assert store.retire("w1") == ["a", "b"]


async def test_claim_waits_until_something_is_queued() -> None:
    with Store() as store:
        claim = asyncio.create_task(store.claim_async("w", 1, wait_s=30))
        await asyncio.sleep(0)
        await asyncio.to_thread(create, store, "late")
        assert [r.rollout_id for r in await claim] == ["late"]
        assert await store.claim_async("w", 1, wait_s=0) == []


async def test_a_retired_worker_gets_nothing() -> None:
    with Store() as store:
        store.retire("w")
        create(store, "a")
        assert await store.claim_async("w", 1, wait_s=0.01) == []
        assert len(store.claim("other")) == 1


def test_patch_keeps_to_the_table_of_transitions() -> None:
    with Store() as store:
        create(store, "a")
        with pytest.raises(RolloutStateError, match="queuing -> succeeded"):
            store.patch("a", StatusChange(state=RolloutState.SUCCEEDED))
        store.patch("a", StatusChange(state=RolloutState.RUNNING))
        store.patch("a", StatusChange(state=RolloutState.SUCCEEDED))
        with pytest.raises(RolloutStateError, match="succeeded -> failed"):
            store.patch("a", StatusChange(state=RolloutState.FAILED))
        assert store.claim("w") == []


def test_unknown_rollouts_are_refused() -> None:
    with Store() as store:
        for use in (
            lambda: store.get("x"),
            lambda: store.events("x"),
            lambda: store.begin_call("x", "0", "agent"),
            lambda: store.requeue("x", Reason(kind="why")),
        ):
            with pytest.raises(RolloutNotFoundError, match="x"):
                use()


def test_a_failed_attempt_is_retried_with_fresh_events() -> None:
    with Store(max_attempts=2) as store:
        create(store, "a")
        store.claim("w")
        recorded_by(store, "a", recorded())
        after = store.finish(
            "a",
            "0",
            state=RolloutState.FAILED,
            reason=Reason(kind="crash", detail="boom"),
        )
        assert after.status.state is RolloutState.QUEUING
        assert store.events("a") == []
        [retried] = store.claim("w")
        assert retried.status.last_attempt_id == "1"
        with pytest.raises(RolloutStateError, match="Attempt 0"):
            store.begin_call("a", "0", "agent")
        with pytest.raises(RolloutStateError, match="Attempt 0"):
            recorded_by(store, "a", recorded())
        with pytest.raises(RolloutStateError, match="Attempt 0"):
            store.finish("a", "0", state=RolloutState.SUCCEEDED)
        ended = store.finish(
            "a", "1", state=RolloutState.FAILED, reason=Reason(kind="again")
        )
        assert ended.status.state is RolloutState.FAILED
        assert ended.status.error_message == "again"
        assert store.attempts("a") == ["0", "1"]
        assert [e.event_type for e in store.events("a", "0")] == [
            "model_request",
            "attempt_failed",
        ]


def test_an_attempt_that_is_not_charged_costs_no_try() -> None:
    with Store(max_attempts=1) as store:
        create(store, "a")
        for attempt in range(5):
            [claimed] = store.claim("w")
            assert claimed.status.last_attempt_id == str(attempt)
            assert store.requeue("a", Reason(kind="its worker died"), charge=False)
        store.claim("w")
        assert not store.requeue("a", Reason(kind="hang"))
        assert store.get("a").status.state is RolloutState.FAILED
        with pytest.raises(RolloutStateError, match="has ended"):
            store.requeue("a", Reason(kind="again"))


def test_a_retry_goes_to_the_front_of_the_queue() -> None:
    with Store() as store:
        create(store, *"abc")
        store.claim("w")
        store.requeue("a", Reason(kind="why"))
        assert [r.rollout_id for r in store.claim("w", 9)] == ["a", "b", "c"]


def test_finish_records_events_and_end_together() -> None:
    with Store() as store:
        create(store, "a")
        store.claim("w")
        store.finish("a", "0", state=RolloutState.SUCCEEDED, events=[REWARD])
        assert rewards(store, "a") == [0.5]
        assert store.get("a").status.state is RolloutState.SUCCEEDED
        with pytest.raises(RolloutStateError, match="has ended"):
            store.finish("a", "0", state=RolloutState.SUCCEEDED, events=[REWARD])
        assert len(store.events("a")) == 1


def test_a_rollout_nobody_claimed_cannot_succeed() -> None:
    with Store() as store:
        create(store, "a")
        with pytest.raises(RolloutStateError, match="queuing"):
            store.finish("a", "0", state=RolloutState.SUCCEEDED, events=[REWARD])
        assert store.events("a") == []


def test_wait_terminal_wakes_when_all_or_enough_have_ended() -> None:
    with Store() as store:
        create(store, *"abc")
        store.claim("w", 3)
        assert store.wait_terminal("abc", 0.01) == set()
        store.fail("a", Reason(kind="why"))
        assert store.wait_terminal("abc", 10, count=1) == {"a"}
        enders = [
            threading.Timer(0.02 * i, store.fail, (rollout_id, Reason(kind="why")))
            for i, rollout_id in enumerate("bc")
        ]
        for ender in enders:
            ender.start()
        assert store.wait_terminal("abc", 10) == set("abc")


def test_call_indices_count_per_agent_and_attempt() -> None:
    with Store() as store:
        create(store, "a")
        store.claim("w")
        agents = ["x", "x", "y", "x"]
        assert [store.begin_call("a", "0", agent) for agent in agents] == [0, 1, 0, 2]
        store.requeue("a", Reason(kind="why"))
        assert store.begin_call("a", "1", "x") == 0


def test_model_calls_are_steps_with_exact_ids() -> None:
    with Store() as store:
        create(store, "a")
        for turn in range(3):
            recorded_by(store, "a", recorded(turn))
        calls = store.model_calls("a")
        assert [c.content for c in calls] == ["answer 0", "answer 1", "answer 2"]
        assert calls[2].prompt_ids == list(range(100, 120))
        assert calls[2].response_ids == [2, 70_000]
        assert calls[2].logprobs == [-0.1, -0.25]
        assert calls[2].model_version == 2
        assert len(calls[2].messages) == 5


def test_failed_model_calls_are_events_but_no_steps() -> None:
    with Store() as store:
        create(store, "a")
        recorded_by(store, "a", record(status=500))
        assert store.model_calls("a") == []
        [event] = store.events("a")
        assert event.data["status"] == "error"


def test_an_event_posted_in_agent_lightnings_shape_is_a_model_call() -> None:
    with Store() as store:
        create(store, "a")
        store.add_event("a", "0", "model_request", recorded(1).data)
        assert store.model_calls("a") == [recorded(1).to_model_call()]


def fill(store: Store) -> None:
    create(store, "done", "running", "queued", metadata={"step": 3})
    store.claim("w", 2)
    for turn in range(3):
        for agent in ("planner", "coder"):
            recorded_by(store, "done", recorded(turn, agent=agent))
    recorded_by(store, "running", recorded())
    store.finish("done", "0", state=RolloutState.SUCCEEDED, events=[REWARD])
    store.register_models([ModelServer(model="m", endpoint="http://one", version=4)])


def test_contract_4_a_restart_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "rollouts.db"
    with Store(path) as store:
        fill(store)
        before = {i: store.get(i) for i in ("done", "running", "queued")}
        events = {i: store.events(i) for i in before}
    with Store(path) as store:
        assert {i: store.get(i) for i in before} == before
        assert {i: store.events(i) for i in before} == events
        assert rewards(store, "done") == [0.5]
        assert store.models("m") == [
            ModelServer(model="m", endpoint="http://one", version=4)
        ]
        assert store.begin_call("running", "0", "agent") == 1
        [running] = store.list_rollouts([RolloutState.RUNNING])
        assert store.requeue(running.rollout_id, Reason(kind="restart"), charge=False)
        claimed = store.claim("w", 9)
        assert [(r.rollout_id, r.status.last_attempt_id) for r in claimed] == [
            ("running", "1"),
            ("queued", "0"),
        ]


def test_tries_are_remembered_across_a_restart(tmp_path: Path) -> None:
    path = tmp_path / "rollouts.db"
    with Store(path, max_attempts=2) as store:
        create(store, "a")
        store.claim("w")
        assert store.requeue("a", Reason(kind="crash"))
    with Store(path, max_attempts=2) as store:
        store.claim("w")
        assert not store.requeue("a", Reason(kind="crash"))


def test_an_ended_rollout_takes_events_and_notes_but_no_calls() -> None:
    with Store() as store:
        fill(store)
        [running] = store.list_rollouts([RolloutState.RUNNING])
        assert running.rollout_id == "running"
        assert store.wait_terminal(["done"], 0) == {"done"}
        events = store.events("done")
        store.add_event("done", "0", "note", {"late": True})
        assert store.events("done")[:-1] == events
        noted = store.patch("done", StatusChange(error_message="late"))
        assert store.get("done") == noted
        assert store.list_terminal(0, 9)[0] == [noted]
        with pytest.raises(RolloutStateError, match="has ended"):
            recorded_by(store, "done", recorded())


def test_ended_rollouts_are_listed_in_the_order_they_ended() -> None:
    with Store() as store:
        create(store, *"abcd")
        store.claim("w", 4)
        for rollout_id in "cad":
            store.fail(rollout_id, Reason(kind="why"))
        found, cursor, total = store.list_terminal(0, 2)
        assert ([r.rollout_id for r in found], total) == (["c", "a"], 3)
        found, cursor, _ = store.list_terminal(cursor, 2)
        assert [r.rollout_id for r in found] == ["d"]
        assert store.list_terminal(cursor, 2) == ([], cursor, 3)
        failed = store.list_rollouts([RolloutState.FAILED])
        assert [r.rollout_id for r in failed] == ["a", "c", "d"]
        assert len(store.list_rollouts(list(RolloutState), limit=3)) == 3


def test_a_deleted_rollout_is_gone_and_its_id_is_free(tmp_path: Path) -> None:
    with Store(tmp_path / "rollouts.db") as store:
        fill(store)
        store.delete("done")
        store.delete("done")
        with pytest.raises(RolloutNotFoundError):
            store.get("done")
        create(store, "done")
        assert store.events("done") == []
        store.flush()
    with Store(tmp_path / "rollouts.db") as store:
        assert store.get("done").status.state is RolloutState.QUEUING
        assert store.events("done") == []


def test_steps_after_a_checkpoint_are_deleted(tmp_path: Path) -> None:
    with Store(tmp_path / "rollouts.db") as store:
        fill(store)
        create(store, "old", metadata={"step": 2})
        create(store, "other")
        store.delete_steps_after(2)
        left = store.list_rollouts(list(RolloutState))
        assert [r.rollout_id for r in left] == ["old", "other"]


def test_what_ended_long_ago_is_read_from_the_file(tmp_path: Path) -> None:
    with Store(tmp_path / "rollouts.db") as store:
        ids = [f"r{i}" for i in range(200)]
        create(store, *ids)
        seen = {}
        for rollout_id in ids:
            store.claim("w")
            recorded_by(store, rollout_id, recorded(1))
            store.finish(rollout_id, "0", state=RolloutState.SUCCEEDED, events=[REWARD])
            seen[rollout_id] = (store.get(rollout_id), store.events(rollout_id))
        for rollout_id in ids:
            assert (store.get(rollout_id), store.events(rollout_id)) == seen[rollout_id]
            assert store.attempts(rollout_id) == ["0"]
        assert store.wait_terminal(ids, 0) == set(ids)
        with pytest.raises(RolloutStateError, match="has ended"):
            store.begin_call("r0", "0", "agent")


def test_triplets_keep_the_last_of_equal_prompts_only() -> None:
    with Store() as store:
        create(store, "a")
        for turn in (0, 0, 1):
            recorded_by(store, "a", recorded(turn))
        store.add_event("a", "0", "reward", {"value": 1, "source": "x", "other": 2})
        *calls, reward = triplet_bodies(store.events("a"))
        assert [len(c["data"]["prompt_token_ids"]) for c in calls] == [10, 15]
        assert calls[0]["data"]["response_log_probs"] == [-0.1, -0.25]
        assert calls[0]["data"]["server"] == {"model": "m", "version": 0}
        assert reward["data"] == {"value": 1, "source": "x"}
        assert len(store.model_calls("a")) == 3


def test_what_is_not_json_is_refused_and_harms_nothing() -> None:
    with Store() as store:
        with pytest.raises(RolloutError, match="not JSON"):
            store.create_rollouts(
                [NewRollout(rollout_id="b", input=1), NewRollout(input=object())]
            )
        create(store, "a", "b")
        with pytest.raises(RolloutError, match="not JSON"):
            store.add_event("a", "0", "note", {"x": object()})
        store.claim("w")
        bad = NewEvent(event_type="note", data={"x": object()})
        with pytest.raises(RolloutError, match="not JSON"):
            store.finish("a", "0", state=RolloutState.SUCCEEDED, events=[REWARD, bad])
        assert store.events("a") == []
        store.flush()
        assert len(store.list_rollouts(list(RolloutState))) == 2


@pytest.mark.parametrize("damage", ["garbage", "cut"])
def test_a_corrupt_file_is_refused(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "rollouts.db"
    with Store(path) as store:
        create(store, *(f"r{i}" for i in range(500)))
    content = path.read_bytes()
    cut = content[: len(content) // 2]
    path.write_bytes(b"garbage " * 1000 if damage == "garbage" else cut)
    with pytest.raises(RolloutError, match=r"rollouts\.db is corrupt"):
        Store(path)


def test_a_newer_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rollouts.db"
    Store(path).close()
    with sqlite3.connect(path) as database:
        database.execute(f"PRAGMA user_version={SCHEMA_VERSION + 1}")
    with pytest.raises(RolloutError, match="Upgrade agentgym"):
        Store(path)


def test_another_programs_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE things (x)")
    with pytest.raises(RolloutError, match="not a rollout store"):
        Store(path)


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RolloutError, match="missing"):
        Store(tmp_path / "missing" / "rollouts.db")


def fill_up(store: Store) -> None:
    """Let the disk be full, as far as SQLite knows, once a little was written."""
    store.flush()
    store._database._connection.execute("PRAGMA max_page_count=12")
    ids = (f"r{i}" for i in range(20))
    create(store, *ids, metadata={"filler": "x" * 4000})


@pytest.mark.slow
def test_a_full_disk_is_reported_by_everything_once_it_is_not_waited_for_any_more(
    tmp_path: Path,
) -> None:
    store = Store(tmp_path / "rollouts.db", disk_wait_s=0.1)
    fill_up(store)
    for use in (
        store.flush,
        lambda: store.wait_terminal(["r0"]),
        lambda: store.claim("w"),
        lambda: store.begin_call("r0", "0", "agent"),
        lambda: create(store, "late"),
        store.close,
    ):
        with pytest.raises(StoreError, match="the disk is full"):
            use()


def test_what_was_there_before_leaves_the_journal_too(tmp_path: Path) -> None:
    path, journal = tmp_path / "rollouts.db", tmp_path / "rollouts.db-wal"
    database = Database(path, group_commit_s=0.0, calm_s=0.2)
    row = "INSERT OR REPLACE INTO models VALUES ('m', 'e', ?)"
    database.submit((row, ("as it was",)))
    database.flush()
    assert b"as it was" in journal.read_bytes()
    database.submit((row, ("as it is",)))
    database.flush()
    while journal.stat().st_size:
        time.sleep(0.01)
    assert b"as it is" in path.read_bytes()
    assert b"as it was" not in path.read_bytes()
    database.close()


def test_the_kind_of_an_event_tells_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_TOKEN", "d0-not-tell-it")
    with Store(tmp_path / "rollouts.db") as store:
        create(store, "a")
        store.add_event("a", "0", "said d0-not-tell-it", {})
        assert store.events("a")[0].event_type == "said [redacted: SOME_TOKEN]"


def test_a_file_that_another_store_has_open_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "rollouts.db"
    with Store(path) as store:
        create(store, "a")
        with pytest.raises(RolloutError, match=f"Process {os.getpid()} writes"):
            Store(path)
    with Store(path) as store:
        assert [r.rollout_id for r in store.list_rollouts(list(RolloutState))] == ["a"]


def test_other_names_of_a_file_are_the_same_file(tmp_path: Path) -> None:
    path, link = (tmp_path / name for name in ("rollouts.db", "link"))
    link.symlink_to(path)
    with Store(path) as store:
        create(store, "a")
        with pytest.raises(RolloutError, match=f"Process {os.getpid()} writes"):
            Store(link)
    with Store(link) as store:
        assert [r.rollout_id for r in store.list_rollouts(list(RolloutState))] == ["a"]


@pytest.mark.slow
def test_who_waits_for_a_store_that_fails_is_told_at_once(tmp_path: Path) -> None:
    store = Store(tmp_path / "rollouts.db", disk_wait_s=0.1)
    create(store, "running")
    store.claim("w")
    with ThreadPoolExecutor(2) as pool:
        waiting = [
            pool.submit(store.wait_terminal, ["running"]),
            pool.submit(asyncio.run, waits_for_end(store, "running")),
        ]
        fill_up(store)
        for work in waiting:
            with pytest.raises(StoreError, match="the disk is full"):
                work.result()
    with pytest.raises(StoreError):
        store.close()


async def waits_for_end(store: Store, rollout_id: str) -> None:
    await store.changes.wait(lambda: store.has_ended(rollout_id), 60)


@pytest.mark.slow
def test_space_that_comes_back_is_used(tmp_path: Path) -> None:
    store = Store(tmp_path / "rollouts.db", disk_wait_s=60)
    fill_up(store)
    seen: list[str | None] = []

    def beat(stalled: str | None) -> None:
        if stalled is not None and stalled not in seen:
            seen.append(stalled)
            with store._database._connection_lock:
                store._database._connection.execute("PRAGMA max_page_count=100000")

    store.flush(beat)
    assert seen == ["the disk is full"]
    assert store.stalled is None
    store.close()
    with Store(tmp_path / "rollouts.db") as store:
        assert len(store.list_rollouts(list(RolloutState))) == 20


@pytest.mark.slow
def test_a_locked_file_is_waited_for_and_given_up(tmp_path: Path) -> None:
    path = tmp_path / "rollouts.db"
    store = Store(path)
    with closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN IMMEDIATE")
        create(store, "a")

        def beat(stalled: str | None) -> None:
            if stalled is not None:
                raise InterruptedError(stalled)

        with pytest.raises(InterruptedError, match="locked"):
            store.flush(beat)
        store.give_up()
        with pytest.raises(StoreError, match="locked"):
            store.close()


def test_a_closed_store_takes_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path / "rollouts.db")
    store.close()
    with pytest.raises(RolloutError, match="closed"):
        create(store, "a")


def test_the_file_is_read_without_this_package(tmp_path: Path) -> None:
    with Store(tmp_path / "rollouts.db") as store:
        fill(store)
        store.requeue("running", Reason(kind="timeout"))
        recorded_data = store.events("done")[0].data
    with sqlite3.connect(tmp_path / "rollouts.db") as database:
        states = dict(database.execute("SELECT rollout_id, state FROM rollouts"))
        [(reason,)] = database.execute(
            "SELECT json_extract(data, '$.reason.kind') FROM events "
            "WHERE event_type = 'attempt_failed'"
        )
        [(data,)] = database.execute(
            "SELECT data FROM events WHERE event_type = 'model_request' LIMIT 1"
        )
    assert states == {"done": "succeeded", "running": "queuing", "queued": "queuing"}
    assert reason == "timeout"
    assert orjson.loads(zlib.decompress(data)) == recorded_data


def test_each_end_is_reported_once() -> None:
    with Store() as store:
        store.create_rollouts([NewRollout(rollout_id=i, input={}) for i in "abcd"])
        store.fail("a", Reason(kind="x"))
        with store.ends("abc") as ends:
            assert ends.wait(10) == {"a"}
            assert ends.wait(0) == set()
            store.fail("d", Reason(kind="x"))
            store.fail("b", Reason(kind="x"))
            assert ends.wait(10) == {"b"}
            store.delete("c")
            assert ends.wait(10) == {"c"}
            assert ends.left == set()
            assert ends.wait(10) == set()
