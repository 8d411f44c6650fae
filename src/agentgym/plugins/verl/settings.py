"""Define verl's virtual environment, and convert a run's settings to verl's."""

from pathlib import Path
from typing import Any

from agentgym.core.config import TrainingConfig
from agentgym.core.formats import FORMATS
from agentgym.engines.base import (
    BETAS,
    CLIP_BOUND,
    EPSILON,
    LARGE_EPSILON,
    LEARNING_RATE,
    MAX_GRAD_NORM,
    usual_rates,
)
from agentgym.engines.credit import clip_range
from agentgym.engines.environments import Build, EngineEnvironment
from agentgym.engines.settings import base_source, context_length, flat
from agentgym.errors import ConfigError, UnsupportedError
from agentgym.models.folder import (
    ADAPTER_FILE,
    base_folder,
    count_parameters,
    held_rank,
    is_small,
    model_source,
    new_rank,
)
from agentgym.plugins.verl.group import VerlSettings
from agentgym.plugins.vllm.group import GpuSettings

# verl imports the last three packages without requiring them.
ENVIRONMENT = EngineEnvironment(
    engine="verl",
    called="verl",
    release=(0, 9),
    build=Build(
        "verl with vLLM",
        (
            "verl[vllm]>=0.9,<0.10",
            "transformers<5.11",
            "tensordict<0.11",
            "ray[default]>=2.60,<2.61",
            "cachetools",
            "fastapi",
            "uvicorn",
        ),
        gigabytes=30,
    ),
)
_MEMORY_SHARE = 0.5
# Sections of verl's settings that have an effect: AgentGym uses verl only to train and
# to serve. One more setting has an effect too.
_USED = ("actor_rollout_ref", "critic", "model_engine", "ray_kwargs", "trainer")
_ALSO = ("algorithm.lam",)
_VALUE_RATE = 1e-5  # of the value model of a large policy; verl's default
# Bytes per trained parameter: weight, gradient and AdamW's two moments in float32.
_BYTES = 16
_ACTOR = "actor_rollout_ref.actor"
_MODEL = "actor_rollout_ref.model"
_ROLLOUT = "actor_rollout_ref.rollout"
# Settings of vLLM, whose servers parse the answers here: the tool-call parser, and the
# chat template's text if it is not the model's own.
TOOL_PARSER = f"{_ROLLOUT}.engine_kwargs.vllm.tool_call_parser"
CHAT_TEMPLATE = f"{_ROLLOUT}.engine_kwargs.vllm.chat_template"
# Settings of verl that AgentGym sets, and the setting of AgentGym to use instead.
OURS = {
    f"{_ACTOR}.optim.lr": "learning_rate",
    f"{_ACTOR}.entropy_coeff": "entropy_coefficient",
    f"{_ACTOR}.use_kl_loss": "kl_coefficient",
    f"{_ACTOR}.kl_loss_coef": "kl_coefficient",
    "critic.enable": "algorithm",
    f"{_MODEL}.path": "model",
    f"{_MODEL}.lora_rank": "lora_rank",
    f"{_ROLLOUT}.tensor_model_parallel_size": "gpus.tensor_parallel",
    f"{_ROLLOUT}.gpu_memory_utilization": "gpus.memory_share",
    f"{_ROLLOUT}.temperature": "temperature",
    "trainer.n_gpus_per_node": "gpus.per_node",
    "trainer.nnodes": "verl.nodes",
}


def verl_settings(config: TrainingConfig) -> dict[str, Any]:
    """Return the settings that differ from verl's defaults, by dotted key."""
    given = flat(VerlSettings.of(config).settings)
    _check_given(given)
    engine = given.get("model_engine", "dp")
    if engine not in ("dp", "megatron"):
        raise UnsupportedError(
            f"verl.model_engine = {engine!r}: this works with dp, which is FSDP2, and "
            "megatron."
        )
    rank = trained_rank(config)
    only_dp = {
        "warm_start": config.warm_start,
        f"lora_rank = {rank}": rank > 0,
        "algorithm = 'ppo'": config.algorithm == "ppo",
    }
    for name, is_set in only_dp.items():
        if is_set and engine == "megatron":
            raise UnsupportedError(
                f"{name} with verl.model_engine = 'megatron': it works with dp alone. "
                f"Change one of them (all weights are trained with lora_rank = 0)."
            )
    gpus, nodes = GpuSettings.of(config), VerlSettings.of(config).nodes
    if (count := gpus.per_node * nodes) % gpus.tensor_parallel:
        raise UnsupportedError(
            f"gpus.tensor_parallel = {gpus.tensor_parallel} does not divide the "
            f"{count} GPUs of gpus.per_node x verl.nodes."
        )
    return {
        "model_engine": engine,
        **_model(config, rank),
        **_actor(config, engine),
        **_critic(config),
        **_rollout(config),
        "trainer.n_gpus_per_node": gpus.per_node,
        "trainer.nnodes": nodes,
        **given,
    }


def learning_rate(config: TrainingConfig, *, is_warmed: bool = False) -> float:
    """Return the peak learning rate: the user's, or the default for the model."""
    return config.learning_rate or rates(config, is_warmed=is_warmed)[0]


def rates(config: TrainingConfig, *, is_warmed: bool = False) -> tuple[float, float]:
    """Return the default peak learning rates of updates and of a warm start."""
    return usual_rates(
        has_adapter=trained_rank(config) > 0,
        is_small=is_small(config.model),
        is_warmed=is_warmed,
    )


def trained_rank(config: TrainingConfig) -> int:
    """Return the rank of the trained adapter; 0 if all weights are trained."""
    held = held_rank(Path(model_source(config.model)))
    return held or new_rank(config.model, config.lora_rank)


def _check_given(given: dict[str, Any]) -> None:
    for key, value in given.items():
        if key in OURS:
            raise ConfigError(
                f"verl.{key} = {value!r}: set {OURS[key]} instead, which all engines "
                "read."
            )
        if key.partition(".")[0] not in _USED and key not in _ALSO:
            raise ConfigError(
                f"verl.{key} = {value!r} has no effect here. Sections of verl that "
                f"have one: {', '.join(_USED)}."
            )


def _model(config: TrainingConfig, rank: int) -> dict[str, Any]:
    source = Path(model_source(config.model))
    found: dict[str, Any] = {f"{_MODEL}.path": base_source(config.model)}
    if rank:
        # Merged for sampling: an adapter that a server does not support would be
        # ignored.
        found |= {f"{_MODEL}.lora_rank": rank, f"{_MODEL}.lora_alpha": 2 * rank}
        found |= {f"{_MODEL}.lora.merge": True}
    if (source / ADAPTER_FILE).is_file():
        found[f"{_MODEL}.lora_adapter_path"] = str(source)
    return found


def _actor(config: TrainingConfig, engine: str) -> dict[str, Any]:
    values: dict[str, Any] = {
        **actor_settings(config, engine),
        "use_dynamic_bsz": True,
        "policy_loss.loss_mode": "vanilla",
        "loss_agg_mode": "token-mean",
        "kl_loss_coef": config.kl_coefficient,
        "kl_loss_type": "low_var_kl",  # k3
    }
    return {f"{_ACTOR}.{key}": value for key, value in values.items()}


def actor_settings(config: TrainingConfig, engine: str = "dp") -> dict[str, Any]:
    """Return the settings of loss and optimizer, for any trainer that is based on verl.

    Keys are relative to verl's section ``actor``. ``engine`` is ``dp`` (FSDP) or
    ``megatron``.
    """
    low, high = clip_range(config.algorithm)
    is_fsdp = engine == "dp"
    return {
        "ppo_epochs": 1,
        "clip_ratio": low,
        "clip_ratio_low": low,
        "clip_ratio_high": high,
        "clip_ratio_c": CLIP_BOUND,
        "entropy_coeff": config.entropy_coefficient,
        "use_kl_loss": config.kl_coefficient > 0,
        "data_loader_seed": config.seed % 2**31,
        **_optimizer(config, learning_rate(config), "eps" if is_fsdp else "adam_eps"),
        **_shards(config, "fsdp_config" if is_fsdp else "megatron"),
        **({"strategy": "fsdp2", "fsdp_config.strategy": "fsdp2"} if is_fsdp else {}),
    }


def _optimizer(
    config: TrainingConfig, rate: float, epsilon: str = "eps"
) -> dict[str, Any]:
    """Return the settings of AdamW with the learning rate ``rate``."""
    value = EPSILON if is_small(config.model) else LARGE_EPSILON
    return {
        "optim.lr": rate,
        "optim.betas": list(BETAS),
        "optim.weight_decay": 0.0,
        "optim.clip_grad": MAX_GRAD_NORM,
        "optim.override_optimizer_config": {epsilon: value},
    }


def _shards(config: TrainingConfig, section: str) -> dict[str, Any]:
    """Return the settings of a model that is sharded over GPUs: offloading and seed."""
    return {
        f"{section}.param_offload": VerlSettings.of(config).offload,
        f"{section}.optimizer_offload": VerlSettings.of(config).offload,
        f"{section}.seed": config.seed % 2**31,
    }


def _critic(config: TrainingConfig) -> dict[str, Any]:
    """Return the settings of ``ppo``'s value model; empty for other algorithms.

    All weights of the value model are trained: verl supports adapters for language
    models only, and would not train the value model's new output layer.
    """
    if config.algorithm != "ppo":
        return {}
    rate = LEARNING_RATE if is_small(config.model) else _VALUE_RATE
    values: dict[str, Any] = {
        "enable": True,
        "strategy": "fsdp2",
        "model.path": base_source(config.model),
        "model.lora_rank": 0,
        "fsdp.strategy": "fsdp2",
        **_optimizer(config, rate),
        **_shards(config, "fsdp"),
    }
    return {f"critic.{key}": value for key, value in values.items()}


def value_model_words(config: TrainingConfig) -> str:
    """Describe the memory of ``ppo``'s value model; empty for other algorithms."""
    if config.algorithm != "ppo":
        return ""
    folder = base_folder(model_source(config.model))
    count = count_parameters(folder) if folder is not None else 0
    size = f"{count * _BYTES / 1e6:,.0f} MB" if count else f"{_BYTES} bytes a parameter"
    return f"value model, in addition: {size} over all GPUs, and activations"


def _rollout(config: TrainingConfig) -> dict[str, Any]:
    form = "hermes" if config.tool_format == "auto" else config.tool_format
    return {
        **rollout_settings(config),
        f"{_ROLLOUT}.prompt_length": max(
            1, context_length(config) - config.answer_tokens
        ),
        f"{_ROLLOUT}.response_length": config.answer_tokens,
        f"{_ROLLOUT}.seed": config.seed % 2**31,
        TOOL_PARSER: FORMATS[form].vllm_parser,  # the engine finds the format
    }


def rollout_settings(config: TrainingConfig) -> dict[str, Any]:
    """Return the settings of inference servers, for any trainer based on verl."""
    values: dict[str, Any] = {
        "name": "vllm",
        "tensor_model_parallel_size": GpuSettings.of(config).tensor_parallel,
        "gpu_memory_utilization": GpuSettings.of(config).memory_share or _MEMORY_SHARE,
        "temperature": config.temperature,
        "max_model_len": context_length(config),
        "engine_kwargs.vllm.enable_auto_tool_choice": True,
    }
    return {f"{_ROLLOUT}.{key}": value for key, value in values.items()}
