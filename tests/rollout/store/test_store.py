"""The store: lifecycle of rollouts, attempts, events, and what a restart keeps."""

import sqlite3
import threading
from pathlib import Path
from typing import Any

import pytest
from agentlightning.schemas import (
    EventCreate,
    Model,
    RolloutCreate,
    RolloutState,
    RolloutStatusPatch,
)

from agentgym.core.trajectory import Reason
from agentgym.errors import RolloutError, RolloutNotFoundError, RolloutStateError
from agentgym.rollout.store.calls import RecordedCall, record_of_response
from agentgym.rollout.store.database import SCHEMA_VERSION
from agentgym.rollout.store.events import to_model_call, triplets
from agentgym.rollout.store.store import Store

REWARD = EventCreate(event_type="reward", data={"value": 0.5})


def create(store: Store, *ids: str, **fields: Any) -> None:
    store.create_rollouts(
        [RolloutCreate(rollout_id=i, input={"task": i}, **fields) for i in ids]
    )


def recorded(
    turn: int = 0, *, agent: str = "agent", routes: Any = None
) -> RecordedCall:
    """Return call number ``turn`` of a conversation that grows by two messages."""
    messages = [
        {"role": "user", "content": f"message {i}"} for i in range(2 * turn + 1)
    ]
    return RecordedCall(
        agent=agent,
        model="m",
        endpoint="in-process",
        model_version=turn,
        request={"messages": messages, "tools": [{"type": "function"}]},
        response={
            "choices": [
                {"message": {"content": f"answer {turn}"}, "finish_reason": "stop"}
            ]
        },
        prompt_ids=list(range(100, 110 + 5 * turn)),
        response_ids=[turn, 70_000],
        logprobs=[-0.1, -0.25],
        routed_experts=routes,
    )


def test_a_known_id_is_returned_unchanged() -> None:
    with Store() as store:
        create(store, "a")
        store.claim("w")
        [again] = store.create_rollouts([RolloutCreate(rollout_id="a", input="other")])
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
        assert store.held_by("w1") == ["a", "b"]


def test_claim_waits_until_something_is_queued() -> None:
    with Store() as store:
        claimed: list[str] = []
        thread = threading.Thread(
            target=lambda: claimed.extend(
                r.rollout_id for r in store.claim("w", wait_s=30)
            )
        )
        thread.start()
        create(store, "late")
        thread.join(10)
        assert claimed == ["late"]


def test_patch_keeps_to_the_table_of_transitions() -> None:
    with Store() as store:
        create(store, "a")
        with pytest.raises(RolloutStateError, match="queuing -> succeeded"):
            store.patch("a", RolloutStatusPatch(state=RolloutState.SUCCEEDED))
        store.patch("a", RolloutStatusPatch(state=RolloutState.RUNNING))
        store.patch("a", RolloutStatusPatch(state=RolloutState.SUCCEEDED))
        with pytest.raises(RolloutStateError, match="succeeded -> failed"):
            store.patch("a", RolloutStatusPatch(state=RolloutState.FAILED))
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
        store.record_call("a", "0", recorded())
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
            store.record_call("a", "0", recorded())
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
        assert store.reward("a") == 0.5
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


@pytest.mark.parametrize("value", [None, True, "1"])
def test_contract_2_a_reward_that_is_no_number_is_none(value: object) -> None:
    with Store() as store:
        create(store, "a")
        assert store.reward("a") is None
        store.add_event("a", "0", "reward", {"value": value})
        assert store.reward("a") is None


def test_the_last_reward_counts() -> None:
    with Store() as store:
        create(store, "a")
        for value in (1.0, -1.0):
            store.add_event("a", "0", "reward", {"value": value})
        assert store.reward("a") == -1.0


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
            store.record_call("a", "0", recorded(turn))
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
        failure = record_of_response({"error": {}}, request={}, http_status=500)
        store.record_call("a", "0", failure)
        assert store.model_calls("a") == []
        [event] = store.events("a")
        assert event.data["status"] == "error"


def test_only_model_requests_become_model_calls() -> None:
    with Store() as store:
        create(store, "a")
        event = store.add_event("a", "0", "tool_call", {"name": "x"})
        with pytest.raises(RolloutError, match="tool_call"):
            to_model_call(event)


def test_an_event_posted_in_agent_lightnings_shape_is_a_model_call() -> None:
    with Store() as store:
        create(store, "a")
        data = recorded(1).to_data()
        store.add_event("a", "0", "model_request", data)
        assert store.model_calls("a") == [recorded(1).to_model_call()]


def fill(store: Store) -> None:
    create(store, "done", "running", "queued", metadata={"step": 3})
    store.claim("w", 2)
    for turn in range(3):
        for agent in ("planner", "coder"):
            store.record_call("done", "0", recorded(turn, agent=agent))
    store.record_call("running", "0", recorded())
    store.finish("done", "0", state=RolloutState.SUCCEEDED, events=[REWARD])
    store.models.upsert([Model(model="m", endpoint="http://one", version=4)])


def test_contract_4_a_restart_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "rollouts.db"
    with Store(path) as store:
        fill(store)
        before = {i: store.get(i) for i in ("done", "running", "queued")}
        events = {i: store.events(i) for i in before}
    with Store(path) as store:
        assert {i: store.get(i) for i in before} == before
        assert {i: store.events(i) for i in before} == events
        assert store.reward("done") == 0.5
        assert store.models.pick("m", "done") == Model(
            model="m", endpoint="http://one", version=4
        )
        assert store.begin_call("running", "0", "agent") == 1
        assert store.recover(Reason(kind="restart")) == ["running"]
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


def test_forgotten_rollouts_are_read_from_the_file(tmp_path: Path) -> None:
    with Store(tmp_path / "rollouts.db") as store:
        fill(store)
        rollout, events = store.get("done"), store.events("done")
        store.forget(["done", "running"])
        assert store.get("done") == rollout
        assert store.events("done") == events
        assert store.running() == ["running"]
        assert store.wait_terminal(["done"], 0) == {"done"}
        store.add_event("done", "0", "note", {"late": True})
        assert store.events("done")[:-1] == events


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
        deleted = store.delete_steps_after(2)
        assert sorted(deleted) == ["done", "queued", "running"]
        assert store.get("old")
        assert store.get("other")


def test_only_the_last_of_continued_routes_is_kept(tmp_path: Path) -> None:
    with Store(tmp_path / "rollouts.db") as store:
        create(store, "a")
        first = recorded(0, routes=[[1, 2]])
        longer = record_of_response(
            {"prompt_token_ids": [*first.prompt_ids, *first.response_ids, 9]},
            request={},
            routed_experts=[[3]],
        )
        store.record_call("a", "0", first)
        store.record_call("a", "0", longer)
        routes = [e.data.get("routed_experts") for e in store.events("a")]
        assert routes == [None, [[3]]]
        store.fail("a", Reason(kind="why"))
        store.forget(["a"])
        kept = [e.data.get("routed_experts") for e in store.events("a")]
        assert kept[:2] == routes


def test_triplets_keep_the_last_of_equal_prompts_only() -> None:
    with Store() as store:
        create(store, "a")
        for turn in (0, 0, 1):
            store.record_call("a", "0", recorded(turn))
        store.add_event("a", "0", "reward", {"value": 1, "source": "x", "other": 2})
        *calls, reward = triplets(store.events("a"))
        assert [len(c["data"]["prompt_token_ids"]) for c in calls] == [10, 15]
        assert calls[0]["data"]["response_log_probs"] == [-0.1, -0.25]
        assert calls[0]["data"]["server"] == {"model": "m", "version": 0}
        assert reward["data"] == {"value": 1, "source": "x"}
        assert len(store.model_calls("a")) == 3


def test_what_is_not_json_is_refused_and_harms_nothing() -> None:
    with Store() as store:
        with pytest.raises(RolloutError, match="not JSON"):
            store.create_rollouts(
                [RolloutCreate(rollout_id="b", input=1), RolloutCreate(input=object())]
            )
        create(store, "a", "b")
        with pytest.raises(RolloutError, match="not JSON"):
            store.add_event("a", "0", "note", {"x": object()})
        store.claim("w")
        bad = EventCreate(event_type="note", data={"x": object()})
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
    with pytest.raises(RolloutError, match="no rollout store"):
        Store(path)


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(RolloutError, match="missing"):
        Store(tmp_path / "missing" / "rollouts.db")


def test_a_full_disk_is_reported_by_flush(tmp_path: Path) -> None:
    store = Store(tmp_path / "rollouts.db")
    store.flush()
    store._database._connection.execute("PRAGMA max_page_count=12")
    with pytest.raises(RolloutError, match="full"):
        for i in range(100):
            create(store, f"r{i}", metadata={"filler": "x" * 4000})
            store.flush()
    with pytest.raises(RolloutError, match="full"):
        store.close()


def test_a_closed_store_takes_nothing(tmp_path: Path) -> None:
    store = Store(tmp_path / "rollouts.db")
    store.close()
    with pytest.raises(RolloutError, match="closed"):
        create(store, "a")
