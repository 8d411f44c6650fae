"""LightningEngines: refuse settings that Agent Lightning's trainer does not support."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from agentgym.core.config import TrainingConfig
from agentgym.engines.base import Engine, EngineFactory, EngineSummary
from agentgym.engines.environments import Checked
from agentgym.engines.settings import flat, log_file
from agentgym.errors import (
    UnsupportedError,
    UsageError,
)
from agentgym.evaluate.ranker import is_judged
from agentgym.models.folder import describe_model, held_rank, model_source
from agentgym.plugins.lightning.environment import ENVIRONMENT, check, require
from agentgym.plugins.lightning.settings import (
    ESTIMATORS,
    RAY_GPUS,
    lightning_settings,
)
from agentgym.plugins.verl.group import VerlSettings
from agentgym.plugins.verl.support import composed_text, require_gpus, served_form
from agentgym.plugins.vllm.group import GpuSettings
from agentgym.scenarios.base import Scenario
from agentgym.scenarios.registry import get_scenario

_ONE_REWARD = "Agent Lightning's trainer reads one reward of each rollout"
_ELSE = "use --engine verl"


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
        for problem in _unsupported(config):
            raise UnsupportedError(problem)
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
        for problem in _unsupported(paced):
            raise UnsupportedError(problem)
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


def _unsupported(config: TrainingConfig) -> Iterator[str]:
    """Yield an error message for each setting that the trainer does not support."""
    by = "with engine = 'lightning'"
    if config.gpu not in ("auto", "local"):
        yield f"gpu = {config.gpu!r} {by}: it needs GPUs of this machine."
    if config.time is not None:
        yield (
            f"time = {config.time:g} {by}: all steps of its trainer have one size, and "
            f"a time limit fits it to the machine. Give --episodes, or {_ELSE}."
        )
    if config.algorithm not in ESTIMATORS:
        known = " and ".join(ESTIMATORS)
        yield (
            f"algorithm = {config.algorithm!r} {by}: {_ONE_REWARD}, which {known} "
            f"compare. Choose one of them, or {_ELSE}."
        )
    if config.train_roles is not None:
        yield (
            f"train_roles = {','.join(config.train_roles)} {by}: its trainer trains "
            f"the tokens of all roles. Leave it out, or {_ELSE}."
        )
    if config.train_tokens not in (None, "all"):
        yield (
            f"train_tokens = {config.train_tokens!r} {by}: its trainer trains every "
            f"token of the model. Leave it out, or {_ELSE}."
        )
    if config.failure_cost:
        yield (
            f"failure_cost = {config.failure_cost:g} {by}: {_ONE_REWARD}, and no "
            f"penalty of single calls. Set it to 0, or {_ELSE}."
        )
    with closing(get_scenario(config.scenario)) as scenario:
        scores_calls = type(scenario).broadcast_rewards
    if scores_calls is not Scenario.broadcast_rewards:
        yield (
            f"{config.scenario_name} {by}: the scenario scores single model calls "
            f"(broadcast_rewards), and {_ONE_REWARD}. Train it with another engine."
        )
    if is_judged(config):
        yield f"judge {by}: {_ONE_REWARD}, the check's. Leave it out, or {_ELSE}."
    if config.thinking != "auto" or config.chat_template_kwargs:
        yield (
            f"thinking or chat_template_kwargs {by}: its servers get no variables of "
            f"the chat template. Leave them out, or {_ELSE}."
        )
