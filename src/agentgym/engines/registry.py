"""Find the engine for a run's settings, check the settings, and create the engine."""

from collections.abc import Collection

from agentgym.core.config import AUTO_ENGINE, TrainingConfig
from agentgym.core.registry import Registry
from agentgym.engines.base import Engine, EngineFactory, EngineSummary
from agentgym.engines.lengths import paced
from agentgym.errors import ModelError, UnsupportedError
from agentgym.models.reference import is_remote

ENGINES = Registry(
    EngineFactory,
    "engine",
    {
        "local": "agentgym.engines.local.support:LocalEngines",
        "vllm": "agentgym.engines.vllm.support:VllmEngines",
    },
    group="agentgym.engines",
)
_OF_SOME = (
    *("gpus_per_node", "tensor_parallel", "vllm", "precision", "ratio_limit"),
    *("verl.nodes", "verl.offload", "verl.server", "verl.settings"),
    *("gradient_checkpointing", "kl_coefficient", "role_adapters"),
)
"""Settings that only some engines support, see ``EngineFactory.supports``."""


def chosen_engine(config: TrainingConfig) -> tuple[TrainingConfig, str]:
    """Replace the setting ``engine = "auto"`` by the engine to use on this machine."""
    if config.engine != AUTO_ENGINE:
        return config, ""
    from agentgym.engines.vllm.support import chosen

    name, note = chosen(config)
    return config.replaced(engine=name), note


def remote_engine(config: TrainingConfig) -> str:
    """Return the value of ``engine`` for a run on another machine.

    ``auto`` stays ``auto`` if vLLM suits the model: whether vLLM or the local engine is
    used then depends on the other machine's GPU.
    """
    if config.engine == AUTO_ENGINE and not config.vllm:
        from agentgym.engines.vllm.support import suits

        return AUTO_ENGINE if suits(config) else "local"
    return engine_name(config)


def imitates(config: TrainingConfig) -> bool:
    """Return whether the run's engine can be fine-tuned on examples (a warm start)."""
    return ENGINES.get(engine_name(config)).imitates


def check_engine(config: TrainingConfig) -> EngineSummary:
    """Check that the engine supports the settings, without loading a model."""
    config = config.replaced(engine=engine_name(config))
    factory = _factory(config)
    if config.warm_start and not factory.imitates:
        raise UnsupportedError(
            f"warm_start with engine = {config.engine!r}: that engine cannot imitate "
            "calls. Leave --warm-start out, or use --engine local."
        )
    if factory.supports is not None:
        _refuse_others(config, factory.supports)
        _refuse_value_model(config)
    return factory.check(paced_settings(config))


def paced_settings(config: TrainingConfig) -> TrainingConfig:
    """Fill in unset settings: length limits, the rollout timeout and concurrency."""
    factory = _factory(config)
    try:
        return paced(factory.paced(config))
    except ModelError:  # loading the model reports the problem
        return config


def composed_settings(config: TrainingConfig) -> str:
    """Return the engine library's configuration as text; empty if it has none."""
    return _factory(config).composed(paced_settings(config))


def announced_start(config: TrainingConfig) -> str:
    """Return a message that the engine takes minutes to start; empty if not."""
    return _factory(config).announced(config)


def create_engine(config: TrainingConfig) -> Engine:
    """Load the model and return the engine; see :meth:`EngineFactory.create`."""
    return _factory(config).create(config)


def _refuse_others(config: TrainingConfig, supported: Collection[str]) -> None:
    usual = type(config).model_construct()
    values, defaults = (config.flat(each.model_dump()) for each in (config, usual))
    for name in _OF_SOME:
        value = values[name]
        if name not in supported and value != defaults[name]:
            engines = [e for e in ENGINES if name in (ENGINES.get(e).supports or ())]
            raise UnsupportedError(
                f"{name} = {value!r} is a setting of --engine {' or '.join(engines)}, "
                f"and this run has --engine {config.engine}. Leave it out, or choose "
                "that engine."
            )


def _refuse_value_model(config: TrainingConfig) -> None:
    if config.algorithm == "ppo" and config.engine != "verl":
        raise UnsupportedError(
            f"algorithm = 'ppo' with engine = {config.engine!r}: PPO also trains a "
            "value model, about as large as the policy, which only --engine verl does. "
            "All other algorithms need none: leave --algorithm out for rloo, or choose "
            "--engine verl."
        )


def _factory(config: TrainingConfig) -> EngineFactory:
    if config.cache_requests is not None:
        raise UnsupportedError(
            f"cache_requests = {str(config.cache_requests)!r} is for evaluations of a "
            "model that servers answer for, PROVIDER:MODEL or an address. A model "
            "in training is sampled each time, and one in this process costs nothing."
        )
    if is_remote(config.model):
        raise UnsupportedError(
            f"model = {config.model!r} answers behind a server: it can be measured, "
            "with `agentgym eval`, not trained. Train nano, a folder or an id."
        )
    return ENGINES.get(engine_name(config))


def engine_name(config: TrainingConfig) -> str:
    """Return the engine's name, without checking this machine's GPU."""
    if config.engine != AUTO_ENGINE:
        return config.engine
    return "vllm" if config.vllm else "local"
