"""Agent Lightning's requests and replies, and stores written with its types."""

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from agentgym.core.task import Task
from agentgym.plugins.lightning import schemas
from agentgym.rollout.record import to_trajectory
from agentgym.rollout.store.records import NewRollout, RolloutState, StatusChange
from agentgym.rollout.store.store import Store

LOCAL = {"agent_class": "a:B", "env_map": {"Q": "input.q"}}
ASKED: dict[str, dict[str, Any]] = {
    "plain": {"input": {"data_id": "d"}},
    "without values": {"input": None, "config": None, "metadata": None},
    "local": {"input": 1, "config": {"timeout_seconds": 5, "local": LOCAL}},
    "kubernetes": {"input": [], "config": {"k8s": {"job_template": "t"}}},
    "trainer": {"input": "x", "is_train": False, "metadata": {"batch_idx": 4, "x": 1}},
}
OLD_TASK = (
    '{"id":"t1","split":"train","seed":1,"family":"f","level":1,"instruction":"Hi.",'
    '"initial_state":{},"goal":{},"configurable":{},"one_answer":false}'
)
OLD_ROLLOUT = (
    '{"rollout_id":"%s","input":%s,"is_train":true,"config":{"timeout_seconds":3600,'
    '"local":null,"k8s":null},"metadata":{"batch_idx":null,"sample_idx_in_batch":null,'
    '"scenario":"coding","group":"g","step":%d},"status":{"state":"%s",'
    '"k8s_job_name":null,"last_attempt_id":%s,"error_message":null,"version":3,'
    '"created_at":1764000000.5,"updated_at":1764000001.5}}'
)
OLD_REWARD = (
    '{"value":0.5,"score":{"value":0.5,"success":false,"parts":{}},'
    '"reason":null,"duration_s":1.5}'
)


@pytest.mark.parametrize("name", ASKED)
def test_a_rollout_has_every_field_of_agent_lightnings(name: str) -> None:
    from agentlightning.schemas import Rollout

    [item] = schemas.read_rollouts([ASKED[name]])
    with Store() as store:
        [made] = store.create_rollouts([item])
    body = json.loads(schemas.rollout_body(made).model_dump_json())
    theirs = Rollout.model_validate(body)
    assert theirs.model_dump(mode="json") == body
    given = Rollout.model_validate(
        {k: v for k, v in ASKED[name].items() if v is not None or k == "input"}
        | {key: body[key] for key in ("rollout_id", "status")}
        | {"config": ASKED[name].get("config") or {}}
    )
    assert theirs == given


def test_a_rollout_of_ours_has_the_fields_that_their_clients_read() -> None:
    with Store() as store:
        [made] = store.create_rollouts([NewRollout(input={}, metadata={"step": 1})])
    body = schemas.rollout_body(made)
    assert made.config == {}
    assert body.config == {"timeout_seconds": 3600, "local": None, "k8s": None}
    assert body.metadata == {"batch_idx": None, "sample_idx_in_batch": None, "step": 1}


@pytest.mark.parametrize(
    "config", [{"timeout_seconds": "long"}, {"local": 1}, {"local": {"env_map": [1]}}]
)
def test_a_config_that_their_controller_could_not_read_is_refused(config: Any) -> None:
    with pytest.raises(ValidationError):
        schemas.read_rollouts([{"input": {}, "config": config}])


def test_a_change_holds_the_fields_that_were_sent() -> None:
    change = schemas.read_change({"status": {"state": "running"}})
    assert change == StatusChange(state=RolloutState.RUNNING)
    assert change.model_dump(exclude_unset=True) == {"state": "running"}
    assert schemas.read_change({}).model_dump(exclude_unset=True) == {}
    with pytest.raises(ValidationError):
        schemas.read_change({"status": {"other": 1}})


def old_store(path: Path) -> None:
    """Write rows as the store did while its types were Agent Lightning's."""
    Store(path).close()
    database = sqlite3.connect(path)
    rows = [("done", 1, 1, "succeeded", '"0"'), ("next", None, 2, "queuing", "null")]
    for rollout_id, order, step, state, attempt in rows:
        text = OLD_ROLLOUT % (rollout_id, OLD_TASK, step, state, attempt)
        insert = "INSERT INTO rollouts (rollout_id, terminal_order, rollout) "
        database.execute(insert + "VALUES (?, ?, ?)", (rollout_id, order, text))
    event = ("reward", "done", "0", 1764000001.0, OLD_REWARD)
    database.execute("INSERT INTO events VALUES (?, ?, ?, ?, ?)", event)
    server = '{"model":"m","endpoint":"http://one/v1","version":7}'
    database.execute(
        "INSERT INTO models VALUES (?, ?, ?)", ("m", "http://one/v1", server)
    )
    database.commit()
    database.close()


def test_a_store_with_agent_lightnings_types_opens_and_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "rollouts.db"
    old_store(path)
    with Store(path) as store:
        trajectory = to_trajectory(store.get("done"), store.history("done"))
        assert (trajectory.scenario, trajectory.group) == ("coding", "g")
        assert trajectory.reward == 0.5
        assert [model.version for model in store.models("m")] == [7]
        [claimed] = store.claim("w")
        assert claimed.rollout_id == "next"
        assert Task.model_validate(claimed.input).id == "t1"
        store.finish("next", "0", state=RolloutState.SUCCEEDED)
        ended, _, total = store.list_terminal(0, 10)
        assert ([rollout.rollout_id for rollout in ended], total) == (
            ["done", "next"],
            2,
        )
        store.delete_steps_after(1)
        assert store.list_terminal(0, 10)[2] == 2
        assert [r.rollout_id for r in store.list_rollouts(list(RolloutState))] == [
            "done"
        ]
