"""What may change when a run is resumed: memory and servers, not what is learned."""

import pytest

from agentgym.core.config import TrainingConfig
from agentgym.engines.resuming import resumed_config
from agentgym.errors import ConfigError, UsageError
from agentgym.plugins.verl.group import VerlSettings
from agentgym.plugins.vllm.group import VllmSettings

BEFORE = TrainingConfig.create(
    engine="vllm",
    vllm={"max_num_seqs": 64, "max_model_len": 8192},
    gpus={"memory_share": 0.6},
)


def test_memory_and_flags_of_servers_change_and_the_rest_stays() -> None:
    changes = {
        "episodes": None,
        "gpus": {"memory_share": 0.4},
        "workers": 1,
        "vllm": {"max_model_len": 4096, "max_num_seqs": None, "block_size": 16},
    }
    found = resumed_config(BEFORE, changes)
    flags = {"max_num_seqs": None, "max_model_len": 4096, "block_size": 16}
    assert VllmSettings.of(found).settings == flags
    same = BEFORE.replaced(**{"gpus.memory_share": 0.4}, workers=1)
    assert found.model_dump(exclude={"vllm"}) == same.model_dump(exclude={"vllm"})


def test_servers_of_verl_change_and_its_learner_does_not() -> None:
    share = "actor_rollout_ref.rollout.max_num_seqs"
    found = resumed_config(BEFORE, {"verl": {share: 8}})
    assert VerlSettings.of(found).settings == {share: 8}
    for refused in (
        {"verl": {"actor_rollout_ref.actor.clip_ratio": 1}},
        {"verl": {"settings": {"actor_rollout_ref.actor.clip_ratio": 1}}},
        {"verl.actor_rollout_ref.actor.clip_ratio": 1},
    ):
        with pytest.raises(UsageError, match="out: verl.actor_rollout_ref.actor.cli"):
            resumed_config(BEFORE, refused)


def test_costs_change_and_other_settings_of_groups_do_not() -> None:
    before = TrainingConfig.create(judge="openai:x", **{"judge.weight": 2})
    found = resumed_config(before, {"judge": {"max_cost": 9}, "rent": {"spot": True}})
    assert found == before.replaced(**{"judge.max_cost": 9, "rent.spot": True})
    for name, refused in (
        ("verl.nodes", {"verl": {"nodes": 3}}),
        ("judge.weight", {"judge": {"weight": 2}}),
        ("learning_rate", {"learning_rate": 0.1, "episodes": 99}),
    ):
        with pytest.raises(UsageError, match=f"out: {name}. These may change"):
            resumed_config(before, refused)
    with pytest.raises(ConfigError, match="gpus.memory_share"):
        resumed_config(BEFORE, {"gpus.memory_share": 2.0})
