"""Find the engine for a run's settings, check the settings, and create the engine."""

from collections.abc import Collection

from agentgym.core.config import AUTO_ENGINE, TrainingConfig
from agentgym.core.registry import Registry
from agentgym.core.settings import about
from agentgym.engines.base import Engine, EngineFactory, EngineSummary
from agentgym.errors import ModelError, UnsupportedError
from agentgym.models.reference import is_remote
from agentgym.plugins import registered

ENGINES = Registry(
    EngineFactory,
    "engine",
    {
        "local": "agentgym.engines.local.support:LocalEngines",
    },
    group="agentgym.engines",
)
_AUTO = "agentgym.auto_engine"


def chosen_engine(config: TrainingConfig) -> tuple[TrainingConfig, str]:
    """Replace the setting ``engine = "auto"`` by the engine to use on this machine."""
    if config.engine != AUTO_ENGINE:
        return config, ""
    name, note = registered(_AUTO, "chosen")(config)
    return config.replaced(engine=name), note


def remote_engine(config: TrainingConfig) -> str:
    """Return the value of ``engine`` for a run on another machine; often ``auto``."""
    if config.engine != AUTO_ENGINE:
        return config.engine
    return str(registered(_AUTO, "elsewhere")(config))


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
    from agentgym.engines.lengths import paced  # it reads chat templates

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
    """Raise UnsupportedError for a setting that only other engines support."""
    values = config.flat(config.model_dump())
    for name, field in config.fields().items():
        if not about(field, "some_engines") or name in supported:
            continue
        if (value := values[name]) != field.get_default():
            built_in = ENGINES.built_in  # a broken one of another package stays away
            engines = [e for e in built_in if name in (ENGINES.get(e).supports or ())]
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
            "All other algorithms need none: leave algorithm out for rloo, or choose "
            "--engine verl."
        )


def _factory(config: TrainingConfig) -> EngineFactory:
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
    return str(registered(_AUTO, "named")(config))
