"""LightningEngines: refuse settings that Agent Lightning's trainer does not support."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from agentgym.core.config import TrainingConfig
from agentgym.engines.base import Engine, EngineFactory, EngineSummary
from agentgym.engines.environments import Checked
from agentgym.engines.settings import flat, log_file
from agentgym.errors import UnsupportedError, UsageError
from agentgym.evaluate.ranker import is_judged
from agentgym.models.folder import describe_model, held_rank, model_source
from agentgym.plugins.lightning.settings import (
    ENVIRONMENT,
    ESTIMATORS,
    RAY_GPUS,
    check,
    lightning_settings,
    require,
)
from agentgym.plugins.verl.group import VerlSettings
from agentgym.plugins.verl.support import composed_text, require_gpus, served_form
from agentgym.plugins.vllm.group import GpuSettings
from agentgym.scenarios.base import Scenario
from agentgym.scenarios.registry import get_scenario

_ONE_REWARD = "its trainer reads one reward of each rollout"


class LightningEngines(EngineFactory):
    """Creates engines that train with Agent Lightning's trainer."""

    environment = ENVIRONMENT
    supports = frozenset(
        (
            "gpus.per_node",
            "gpus.tensor_parallel",
            "gpus.memory_share",
            "verl.offload",
            "verl.settings",
        )
    )

    def paced(self, config: TrainingConfig) -> TrainingConfig:
        """Fill in the values that the trainer requires; round the number of episodes.

        Settings left at their defaults become ``lora_rank = 0``, ``train_tokens =
        "all"`` and ``failure_cost = 0``. The number of episodes is rounded down to full
        steps, unless it is less than one step.
        """
        defaults = type(config).model_fields
        size = config.tasks_per_step * config.group_size
        changes: dict[str, Any] = {
            "episodes": config.episodes // size * size or config.episodes,
            "lora_rank": config.lora_rank or 0,
            "train_tokens": config.train_tokens or "all",
        }
        if config.failure_cost == defaults["failure_cost"].default:
            changes["failure_cost"] = 0.0
        return config.replaced(
            **{k: v for k, v in changes.items() if v != getattr(config, k)}
        )

    def check(self, config: TrainingConfig) -> EngineSummary:
        """Check settings, environment and GPUs; raise an error at the first problem."""
        config = self.paced(config)  # the registry does not if the model is missing
        _check_supported(config)
        size = config.tasks_per_step * config.group_size
        if config.episodes % size:
            raise UsageError(
                f"episodes = {config.episodes} is less than one step of {size} "
                "rollouts (tasks_per_step x group_size), which all steps of Agent "
                "Lightning's trainer have: raise --episodes, or lower tasks_per_step."
            )
        if rank := held_rank(Path(model_source(config.model))) or config.lora_rank:
            raise UnsupportedError(
                f"An adapter of rank {rank} with engine = 'lightning': it trains all "
                "weights. Set lora_rank to 0 and train a whole model, or use --engine "
                "vllm or verl."
            )
        summary = describe_model(config.model, 0)
        form = served_form(config, "lightning")
        lightning_settings(config)
        require()
        if RAY_GPUS not in flat(VerlSettings.of(config).settings):
            advice = "Lower it, train on a machine with GPUs, or use --engine local."
            require_gpus(config, advice)
        gpus = GpuSettings.of(config).per_node
        where = f"{gpus} GPU{'s' * (gpus > 1)}, Agent Lightning's trainer"
        return EngineSummary(summary, where, "", form.name, "", form.drops_reasoning)

    def announced(self, config: TrainingConfig) -> str:
        """Return a message that the trainer starts, with the path of its log."""
        log = log_file(config)
        return f"Agent Lightning's trainer starts, which takes minutes; its log: {log}"

    def composed(self, config: TrainingConfig) -> str:
        """Return AgentGym's settings and the whole configuration of the trainer."""
        paced = self.paced(config)
        _check_supported(paced)
        settings = lightning_settings(paced)
        return composed_text(ENVIRONMENT, settings, of="agentlightning")

    def examine(self) -> Iterator[Checked]:
        """Check environment and machine without starting anything; yield results."""
        yield from check()

    def create(self, config: TrainingConfig) -> Engine:
        """Return the engine; its method ``connect`` starts the trainer later."""
        from agentgym.plugins.lightning.engine import LightningEngine

        self.check(config)
        return LightningEngine(config)


def _check_supported(config: TrainingConfig) -> None:
    """Raise UnsupportedError for a setting that the trainer does not support."""
    found: dict[str, str] = {}
    if config.gpu not in ("auto", "local"):
        found[f"gpu = {config.gpu!r}"] = "it needs GPUs of this machine"
    if config.time is not None:
        found[f"time = {config.time:g}"] = "all steps of its trainer have one size"
    if config.algorithm not in ESTIMATORS:
        why = f"{_ONE_REWARD}, which {' and '.join(ESTIMATORS)} compare"
        found[f"algorithm = {config.algorithm!r}"] = why
    if config.train_roles is not None:
        roles = ",".join(config.train_roles)
        found[f"train_roles = {roles}"] = "its trainer trains the tokens of all roles"
    if config.train_tokens not in (None, "all"):
        why = "its trainer trains every token of the model"
        found[f"train_tokens = {config.train_tokens!r}"] = why
    if config.failure_cost:
        why = f"{_ONE_REWARD}, and no penalty of single calls"
        found[f"failure_cost = {config.failure_cost:g}"] = why
    with closing(get_scenario(config.scenario)) as scenario:
        broadcast = type(scenario).broadcast_rewards
    if broadcast is not Scenario.broadcast_rewards:
        why = f"the scenario scores single model calls, and {_ONE_REWARD}"
        found[config.scenario_name] = why
    if is_judged(config):
        found["judge"] = f"{_ONE_REWARD}, the check's"
    if config.thinking != "auto" or config.chat_template_kwargs:
        why = "its servers get no variables of the chat template"
        found["thinking or chat_template_kwargs"] = why
    for name, why in found.items():
        raise UnsupportedError(
            f"{name} with engine = 'lightning': {why}. Leave it out, or use --engine "
            "verl."
        )
