"""verl's settings: composed of a run's, checked by name."""

from pathlib import Path
from typing import Any

import pytest

from agentgym.core.config import TrainingConfig
from agentgym.errors import ConfigError, UnsupportedError
from agentgym.plugins.verl.settings import learning_rate, verl_settings

ACTOR = "actor_rollout_ref.actor"


def made(**settings: Any) -> dict[str, Any]:
    return verl_settings(TrainingConfig.create(engine="verl", **settings))


def test_every_engine_optimises_the_same() -> None:
    settings = made(entropy_coefficient=0.01, seed=7)
    expected = {
        "clip_ratio": 0.2,
        "clip_ratio_low": 0.2,
        "clip_ratio_high": 0.2,
        "policy_loss.loss_mode": "vanilla",
        "loss_agg_mode": "token-mean",
        "ppo_epochs": 1,
        "entropy_coeff": 0.01,
        "use_kl_loss": False,
        "optim.lr": 4e-4,
        "optim.betas": [0.9, 0.99],
        "optim.weight_decay": 0.0,
        "optim.clip_grad": 1.0,
        "optim.override_optimizer_config": {"eps": 1e-5},
        "fsdp_config.seed": 7,
    }
    for key, value in expected.items():
        assert settings[f"{ACTOR}.{key}"] == value, key
    assert settings[f"{ACTOR}.clip_ratio_c"] == 3.0


def test_ppo_has_a_value_model_like_the_policy() -> None:
    assert not any(key.startswith("critic") for key in made())
    settings = made(
        algorithm="ppo", **{"verl.offload": True}, model="some/model", lora_rank=8
    )
    assert settings["critic.enable"] is True
    assert settings["critic.model.path"] == "some/model"
    assert settings["critic.model.lora_rank"] == 0
    assert settings["critic.fsdp.param_offload"] is True
    whole = made(algorithm="ppo", model="some/model", lora_rank=0)
    assert whole["critic.optim.lr"] == 1e-5
    given = {"algorithm.lam": 0.95, "critic.optim.lr": 2e-5}
    assert made(algorithm="ppo", verl=given).items() >= given.items()


def test_hardware_and_sampling_are_a_runs_own() -> None:
    settings = made(
        **{
            "gpus.per_node": 8,
            "verl.nodes": 2,
            "gpus.tensor_parallel": 4,
            "verl.offload": True,
            "gpus.memory_share": 0.7,
        },
        tool_format="xml",
        temperature=0.8,
    )
    assert settings["trainer.n_gpus_per_node"] == 8
    assert settings["trainer.nnodes"] == 2
    rollout = "actor_rollout_ref.rollout"
    assert settings[f"{rollout}.tensor_model_parallel_size"] == 4
    assert settings[f"{rollout}.gpu_memory_utilization"] == 0.7
    assert settings[f"{rollout}.temperature"] == 0.8
    assert settings[f"{rollout}.engine_kwargs.vllm.tool_call_parser"] == "qwen3_coder"
    assert settings[f"{ACTOR}.fsdp_config.param_offload"] is True
    assert settings[f"{ACTOR}.fsdp_config.optimizer_offload"] is True


def test_an_adapters_folder_is_trained_on_over_its_base(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text(
        '{"r": 4, "base_model_name_or_path": "some/base"}'
    )
    settings = made(model=str(tmp_path))
    assert settings["actor_rollout_ref.model.path"] == "some/base"
    assert settings["actor_rollout_ref.model.lora_adapter_path"] == str(tmp_path)
    assert settings["actor_rollout_ref.model.lora_rank"] == 4


@pytest.mark.parametrize(
    ("settings", "rate"),
    [
        ({}, 4e-4),
        ({"model": "some/model"}, 1e-4),
        ({"model": "some/model", "lora_rank": 0}, 1e-6),
        ({"learning_rate": 0.5}, 0.5),
    ],
)
def test_the_learning_rate_fits_what_is_trained(
    settings: dict[str, Any], rate: float
) -> None:
    config = TrainingConfig.create(**settings)
    assert learning_rate(config) == rate


def test_any_setting_of_verl_is_reached_nested_or_dotted() -> None:
    nested = {"actor_rollout_ref": {"rollout": {"max_num_seqs": 8}}}
    assert made(verl=nested)["actor_rollout_ref.rollout.max_num_seqs"] == 8
    vllm = "actor_rollout_ref.rollout.engine_kwargs.vllm.max_loras"
    assert made(verl={vllm: 2})[vllm] == 2
    assert made(verl={"ray_kwargs.ray_init.num_cpus": 4})


@pytest.mark.parametrize(
    ("verl", "why"),
    [
        ({f"{ACTOR}.optim.lr": 1}, "set learning_rate instead"),
        ({"trainer": {"nnodes": 2}}, "set verl.nodes instead"),
        ({"data.train_batch_size": 1}, "has no effect here"),
    ],
)
def test_a_setting_that_has_no_effect_is_refused(
    verl: dict[str, Any], why: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        made(verl=verl)
    assert why in str(refused.value)


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"gpus.per_node": 4, "gpus.tensor_parallel": 3}, "does not divide the 4 GPUs"),
        ({"verl": {"model_engine": "veomni"}}, "works with dp"),
        (
            {"model": "a/b", "lora_rank": 8, "verl": {"model_engine": "megatron"}},
            "lora_rank = 8 with verl.model_engine = 'megatron'",
        ),
        (
            {"lora_rank": 0, "algorithm": "ppo", "verl": {"model_engine": "megatron"}},
            "'ppo' with verl.model_engine = 'megatron'",
        ),
    ],
)
def test_what_cannot_be_shared_out_is_refused(
    settings: dict[str, Any], why: str
) -> None:
    with pytest.raises(UnsupportedError, match=why):
        made(**settings)


def test_megatron_has_settings_of_its_own() -> None:
    megatron = {"model_engine": "megatron"}
    settings = made(lora_rank=0, **{"verl.offload": True}, seed=7, verl=megatron)
    assert settings[f"{ACTOR}.megatron.seed"] == 7
    assert settings[f"{ACTOR}.data_loader_seed"] == 7
    assert settings["model_engine"] == "megatron"
    assert settings[f"{ACTOR}.megatron.param_offload"] is True
    assert not any("fsdp_config" in key for key in settings)
