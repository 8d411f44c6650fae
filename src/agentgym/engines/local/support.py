"""LocalEngines: check settings for the local engine without importing torch."""

from importlib.util import find_spec
from pathlib import Path

from agentgym.core.config import TrainingConfig
from agentgym.core.policy import Policy
from agentgym.core.template_settings import TemplateSettings
from agentgym.engines.base import Engine, EngineFactory, EngineSummary
from agentgym.engines.device import check_device, describe_device, find_device
from agentgym.engines.lengths import CPU_IN_FLIGHT, paced
from agentgym.engines.memory import (
    LIBRARIES,
    check_memory,
    shape_of,
    with_episodes,
)
from agentgym.engines.settings import adapted_roles
from agentgym.errors import MissingExtraError, UnsupportedError
from agentgym.models.chat_template import form_of
from agentgym.models.folder import (
    NANO,
    describe_model,
    held_rank,
    is_small,
    model_source,
    new_rank,
)

_PLAIN_IN_FLIGHT = 4
"""Rollouts that run at once if answers are computed one at a time. While one waits for
an answer, others run their tools."""
_PLAIN_COST = "one sequence at a time, several times slower"
_PLAIN_UPDATE = "an update takes one sequence at a time, several times slower"


class LocalEngines(EngineFactory):
    """Creates engines that train in this process, on the CPU or one GPU."""

    imitates = True
    supports = frozenset(
        (
            "precision",
            "gradient_checkpointing",
            "kl_coefficient",
            "ratio_limit",
            "role_adapters",
            "deterministic",
        )
    )

    def check(self, config: TrainingConfig) -> EngineSummary:
        """Check settings, device and the model's folder."""
        require_libraries("Training in this process")
        device = check_device(config.gpu, deterministic=config.deterministic)
        if config.model == NANO and config.lora_rank:
            raise UnsupportedError(
                f"lora_rank = {config.lora_rank} with model = 'nano': nano is small "
                "and trains all its weights. Leave lora_rank unset, or choose another "
                "--model."
            )
        held = held_rank(Path(model_source(config.model)))
        if held and config.lora_rank not in (None, 0, held):
            raise UnsupportedError(
                f"lora_rank = {config.lora_rank} with model = {config.model!r}: that "
                f"folder holds an adapter of rank {held}, which is trained. "
                "Leave lora_rank unset, or give the adapter's base model."
            )
        rank = held or new_rank(config.model, config.lora_rank)
        if config.precision == "bf16" and not rank:
            raise UnsupportedError(
                f"precision = 'bf16' with all weights of {config.model!r} trained: an "
                "update's steps would be lost in its rounding. Leave precision out, or "
                "train an adapter: lora_rank = 16."
            )
        if config.role_adapters:
            _check_role_adapters(config, rank, is_held=bool(held))
        form = form_of(config.model, config.template)
        return EngineSummary(
            describe_model(config.model, rank, adapted_roles(config)),
            describe_device(device),
            check_memory(config, device),
            form.name,
            path_of(config.model, is_adapter=bool(rank)),
            form.drops_reasoning,
        )

    def paced(self, config: TrainingConfig) -> TrainingConfig:
        """Fill in unset length limits and ``concurrency`` to fit model and device."""
        device = "cpu" if config.deterministic else find_device(config.gpu)
        config = with_episodes(config, device)
        known = shape_of(config.model)
        if known is not None and known[0].obstacles:
            return paced(config, in_flight=_PLAIN_IN_FLIGHT)
        if is_small(config.model) or device != "cpu":
            return config
        return paced(config, in_flight=CPU_IN_FLIGHT)

    def create(self, config: TrainingConfig) -> Engine:
        """Check the settings, load the model, and start to answer requests."""
        from agentgym.engines.local.engine import LocalEngine

        self.check(config)
        device = check_device(config.gpu, deterministic=config.deterministic)
        check_memory(config, device, fetch=True)
        return LocalEngine.create(config)


def _check_role_adapters(config: TrainingConfig, rank: int, *, is_held: bool) -> None:
    """Raise UnsupportedError if a run cannot train an adapter for each role."""
    why = ""
    if not rank:
        why = (
            f"all weights of {config.model!r} are trained, and roles share these: "
            "choose a --model that trains an adapter, such as smollm2"
        )
    elif is_held:
        why = f"{config.model} holds an adapter already: give its base model"
    elif not config.train_roles:
        why = "name the roles that get an adapter: --set train_roles=planner,worker"
    elif config.framework != "langchain":
        why = (
            f"a trained agent of {config.framework} does not say which role is asking; "
            "one of langchain does"
        )
    if why:
        raise UnsupportedError(f"role_adapters: {why}.")


def path_of(model: str, *, is_adapter: bool, samples: bool = True) -> str:
    """Return a note for a run's plan on a model's limits; empty for most models."""
    known = shape_of(model)
    if known is None:
        return ""
    shape, _ = known
    words = []
    if shape.obstacles:
        words.append(f"plain, because of {' and '.join(shape.obstacles)}")
        words.append(_PLAIN_COST if samples else _PLAIN_UPDATE)
    if shape.has_experts and is_adapter:
        words.append("an adapter leaves the experts themselves as they are")
    return "; ".join(words)


def load_policy(model: str, template: TemplateSettings | None = None) -> Policy:
    """Load a policy for inference into this process."""
    require_libraries(f"Answering as {Path(model).name!r} in this process")
    describe_model(model, 0)  # checks the folder
    from agentgym.engines.local.policy import LocalPolicy

    return LocalPolicy.load(model, template=template)


def require_libraries(purpose: str) -> None:
    """Raise MissingExtraError if torch, transformers, peft or safetensors is missing.

    ``purpose`` names the feature that needs them; the error message begins with it.
    """
    if any(find_spec(library) is None for library in LIBRARIES):
        raise MissingExtraError("local", purpose)
