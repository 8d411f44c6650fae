"""Agent Lightning's requests and replies, and stores written with its types."""

import json
from typing import Any

import pytest
from pydantic import ValidationError

from agentgym.plugins.lightning import schemas
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


def test_a_change_holds_the_fields_that_were_sent() -> None:
    change = schemas.read_change({"status": {"state": "running"}})
    assert change == StatusChange(state=RolloutState.RUNNING)
    assert change.model_dump(exclude_unset=True) == {"state": "running"}
    assert schemas.read_change({}).model_dump(exclude_unset=True) == {}
    with pytest.raises(ValidationError):
        schemas.read_change({"status": {"other": 1}})
