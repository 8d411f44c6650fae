"""What may change when a run is resumed: memory and servers, not what is learned."""

from typing import Any

import pytest

from agentgym.core.config import TrainingConfig
from agentgym.engines.resuming import resumed_config
from agentgym.errors import ConfigError, UsageError

BEFORE = TrainingConfig.create(
    engine="vllm", vllm={"max_num_seqs": 64, "max_model_len": 8192}, memory_share=0.6
)


def test_memory_and_flags_of_servers_change_and_the_rest_stays() -> None:
    changes = {
        "episodes": None,
        "memory_share": 0.4,
        "workers": 1,
        "vllm": {"max_model_len": 4096, "max_num_seqs": None, "block_size": 16},
    }
    found = resumed_config(BEFORE, changes)
    assert found.vllm == {"max_model_len": 4096, "block_size": 16}
    same = BEFORE.replaced(memory_share=0.4, workers=1)
    assert found.model_dump(exclude={"vllm"}) == same.model_dump(exclude={"vllm"})


def test_servers_of_verl_change_and_its_learner_does_not() -> None:
    share = "actor_rollout_ref.rollout.max_num_seqs"
    assert resumed_config(BEFORE, {"verl": {share: 8}}).verl.settings == {share: 8}
    with pytest.raises(UsageError, match="leave out: verl.actor_rollout_ref.actor.cli"):
        resumed_config(BEFORE, {"verl": {"actor_rollout_ref.actor.clip_ratio": 1}})


@pytest.mark.parametrize(
    "changes",
    [
        {"judge_max_cost": 9, "max_cost": 8, "spot": True, "offload": True},
        {
            "judge": {"max_cost": 9},
            "rent": {"max_cost": 8, "spot": True},
            "verl": {"offload": True},
        },
    ],
    ids=["flat", "nested"],
)
def test_nested_settings_change_in_the_run_of_an_older_version(
    changes: dict[str, Any],
) -> None:
    recorded = {"judge": "openai:x", "judge_weight": 1.0, "max_hourly": 3.0}
    before = TrainingConfig.restore(recorded | {"nodes": 2, "verl": {"a.b": 1}})
    assert resumed_config(before, changes) == TrainingConfig.create(
        judge={"model": "openai:x", "weight": 1, "max_cost": 9},
        rent={"spot": True, "max_hourly": 3, "max_cost": 8},
        verl={"nodes": 2, "offload": True, "settings": {"a.b": 1}},
    )
    for refused in ({"nodes": 3}, {"judge": {"weight": 2}}, {"verl": {"nodes": 3}}):
        with pytest.raises(UsageError, match=f"leave out: {next(iter(refused))}. "):
            resumed_config(before, changes | refused)


def test_a_setting_of_training_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match="leave out: learning_rate. These may change"):
        resumed_config(BEFORE, {"learning_rate": 0.1, "episodes": 99})
    with pytest.raises(ConfigError, match="memory_share"):
        resumed_config(BEFORE, {"memory_share": 2.0})
