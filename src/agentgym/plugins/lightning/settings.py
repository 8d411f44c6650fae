"""Define Agent Lightning's environment, and convert a run's settings to its own."""

from pathlib import Path
from typing import Any

from agentgym.core.config import TrainingConfig
from agentgym.core.formats import FORMATS
from agentgym.engines.environments import (
    Build,
    Checked,
    EngineEnvironment,
    imports,
    installed_version,
    machine,
)
from agentgym.engines.settings import base_source, context_length, flat
from agentgym.errors import ConfigError, UnsupportedError, UsageError
from agentgym.models.chat_template import form_of
from agentgym.models.folder import model_source
from agentgym.models.template import template_of
from agentgym.plugins.verl.group import VerlSettings
from agentgym.plugins.verl.settings import (
    CHAT_TEMPLATE,
    OURS,
    TOOL_PARSER,
    actor_settings,
    rollout_settings,
)
from agentgym.plugins.vllm.group import GpuSettings

SUPPORTED = "1.0"  # the release of Agent Lightning
# With verl 0.8: Agent Lightning's trainer imports parts of verl that verl 0.9 does not
# have. verl 0.8 needs a vLLM that does not support transformers 5.
ENVIRONMENT = EngineEnvironment(
    engine="lightning",
    called="verl",
    release=(0, 8),
    build=Build(
        "Agent Lightning with verl and vLLM",
        (
            "agentlightning>=1.0,<1.1",
            "verl[vllm]>=0.8,<0.9",
            "transformers<5",
            "tensordict<0.11",
            "pyarrow<24",
            "ray[default]",
            "torch",
        ),
        gigabytes=30,
    ),
)
# Algorithms that need one reward per rollout; verl's estimators have the same names.
ESTIMATORS = ("rloo", "grpo")
FILL_VALUE = "agentlightning.reward_fillna_value"
RAY_GPUS = "ray_kwargs.ray_init.num_gpus"
_MINI_BATCHES = 4  # of a step by default; each is one optimizer step
_MANY = 10**6
_ACTOR = "actor_rollout_ref.actor"
_MODEL = "actor_rollout_ref.model"
_ROLLOUT = "actor_rollout_ref.rollout"
_MINI = f"{_ACTOR}.ppo_mini_batch_size"
_THEIR_OURS = {
    **OURS,
    f"{_ROLLOUT}.n": "group_size",
    "data.train_batch_size": "tasks_per_step",
    "algorithm.adv_estimator": "algorithm",
}
# Settings that the user may not change, since AgentGym sets them.
_FIXED = (
    *("agentlightning.agl_base_url", "agentlightning.agl_key"),
    *("agentlightning.hooks", "agentlightning.async_rollout.enabled"),
    *("trainer.save_freq", "trainer.test_freq", "trainer.val_before_train"),
    *("trainer.resume_mode", "trainer.resume_from_path", "trainer.default_local_dir"),
    *("trainer.total_epochs", "trainer.total_training_steps"),
)


def check() -> list[Checked]:
    """Check the environment and the machine; start no trainer and no servers."""
    try:
        python = ENVIRONMENT.interpreter()
    except UsageError as error:
        return [Checked("environment", False, str(error))]
    names = ("agentlightning", "verl", "ray", "torch", "vllm")
    found = ENVIRONMENT.packages(python, *names)
    found.append(imports(python, "agentlightning.verl, verl, ray, torch"))
    return [*found, *machine()]


def require() -> None:
    """Raise UsageError unless the environment has a supported Agent Lightning."""
    python = ENVIRONMENT.interpreter()
    version = installed_version(python, "agentlightning")
    if version is None or not version.startswith(f"{SUPPORTED}."):
        found = "no agentlightning" if version is None else f"agentlightning {version}"
        raise UsageError(
            f"{python.parent.parent} has {found}, and this works with {SUPPORTED}. "
            f"{ENVIRONMENT.advice}"
        )


def lightning_settings(config: TrainingConfig) -> dict[str, Any]:
    """Return the settings that differ from the trainer's defaults, by dotted key."""
    given = flat(VerlSettings.of(config).settings)
    for key, value in given.items():
        if key in _THEIR_OURS:
            raise ConfigError(
                f"verl.{key} = {value!r}: set {_THEIR_OURS[key]} instead, which all "
                "engines read."
            )
        if key in _FIXED:
            raise ConfigError(
                f"verl.{key} = {value!r}: the run itself sets it. Leave it out."
            )
    made = {
        **_algorithm(config),
        f"{_MODEL}.path": base_source(config.model),
        f"{_MODEL}.use_remove_padding": True,
        f"{_MODEL}.enable_gradient_checkpointing": True,
        **_actor(config),
        **_rollout(config),
        **_trainer(config),
        **given,
    }
    _check_rows(config, made[_MINI])
    return made


def row_limit(config: TrainingConfig) -> int:
    """Return the token limit of a row's prompt, and of the tokens after the prompt.

    Both have the same limit. A row is one training sequence.
    """
    return min(context_length(config), config.episode_tokens)


def _check_rows(config: TrainingConfig, tasks: Any) -> None:
    shared = GpuSettings.of(config)
    if shared.per_node % shared.tensor_parallel:
        raise UnsupportedError(
            f"gpus.tensor_parallel = {shared.tensor_parallel} does not divide the "
            f"{shared.per_node} GPUs of gpus.per_node."
        )
    if not isinstance(tasks, int) or not 1 <= tasks <= config.tasks_per_step:
        raise ConfigError(
            f"verl.{_MINI} = {tasks!r}: give tasks, from 1 to the tasks_per_step = "
            f"{config.tasks_per_step} of this run."
        )
    rows = tasks * config.group_size
    if rows % shared.per_node:
        raise UnsupportedError(
            f"A mini-batch of {rows} rows cannot be shared out among "
            f"{shared.per_node} GPUs: change group_size, or verl.{_MINI}, which is "
            f"{tasks}."
        )


def _algorithm(config: TrainingConfig) -> dict[str, Any]:
    longest = row_limit(config)
    return {
        "algorithm.adv_estimator": config.algorithm,
        "data.train_batch_size": config.tasks_per_step,
        "data.val_batch_size": 1,
        "data.shuffle": False,
        "data.dataloader_num_workers": 0,
        "data.max_prompt_length": longest,
        "data.max_response_length": longest,
        FILL_VALUE: 0.0,
        "agentlightning.trace_aggregator.level": "trajectory",
        "agentlightning.trace_aggregator.trajectory_max_prompt_length": longest,
        "agentlightning.trace_aggregator.trajectory_max_response_length": longest,
    }


def _actor(config: TrainingConfig) -> dict[str, Any]:
    values: dict[str, Any] = {
        **actor_settings(config),
        "ppo_mini_batch_size": max(1, config.tasks_per_step // _MINI_BATCHES),
        "ppo_micro_batch_size_per_gpu": 1,
        "checkpoint.save_contents": ["model", "optimizer", "extra", "hf_model"],
        "checkpoint.load_contents": ["model", "optimizer", "extra"],
    }
    return {f"{_ACTOR}.{key}": value for key, value in values.items()}


def _rollout(config: TrainingConfig) -> dict[str, Any]:
    found: dict[str, Any] = {
        **rollout_settings(config),
        f"{_ROLLOUT}.n": config.group_size,
        f"{_ROLLOUT}.log_prob_micro_batch_size_per_gpu": 1,
        TOOL_PARSER: FORMATS[_form(config)].vllm_parser,
    }
    used = template_of(model_source(config.model), config.template)
    if used.chat_template:
        found[CHAT_TEMPLATE] = used.chat_template
    return found


def _form(config: TrainingConfig) -> str:
    """Return the model's tool-call format; ``hermes`` if the format is not known."""
    if config.tool_format != "auto":
        return config.tool_format
    name = form_of(config.model, config.template).name
    return name if name in FORMATS else "hermes"


def _trainer(config: TrainingConfig) -> dict[str, Any]:
    return {
        "trainer.n_gpus_per_node": GpuSettings.of(config).per_node,
        "trainer.nnodes": 1,
        "trainer.val_before_train": False,
        "trainer.test_freq": -1,
        "trainer.save_freq": 1,
        "trainer.total_epochs": _MANY,
        "trainer.total_training_steps": _MANY,
        "trainer.resume_mode": "disable",
        "trainer.logger": ["console"],
        "ray_kwargs.ray_init._node_ip_address": "127.0.0.1",
        "ray_kwargs.ray_init.include_dashboard": False,
    }


def started_at(
    settings: dict[str, Any], gateway: str, saved: Path, weights: Path | None
) -> dict[str, Any]:
    """Return the settings with those that each start of the trainer needs."""
    hooks = Path(__file__).with_name("hooks.py")
    found = {
        **settings,
        "agentlightning.agl_base_url": gateway,
        "agentlightning.hooks": str(hooks),
        "trainer.default_local_dir": str(saved.absolute()),
    }
    if weights is not None:
        found["trainer.resume_mode"] = "resume_path"
        found["trainer.resume_from_path"] = str(weights.absolute())
    return found
