"""Finds the engine that a configuration asks for."""

from agentgym.core.config import TrainingConfig
from agentgym.engines.base import Engine
from agentgym.errors import UnsupportedError
from agentgym.models.reference import is_remote


def describe_engine(config: TrainingConfig) -> tuple[str, str]:
    """Check what the engine must support, without loading a model.

    Returns:
        The policy and the device, in words.

    Raises:
        UsageError: The engine does not support a setting.
        MissingExtraError: Its libraries are not installed.
    """
    _require_local(config)
    from agentgym.engines.local.support import check_supported

    return check_supported(config)


def create_engine(config: TrainingConfig) -> Engine:
    """Load the model and return the engine.

    Raises:
        UsageError: The engine does not support a setting.
        ModelError: The model cannot be loaded or trained.
    """
    _require_local(config)
    from agentgym.engines.local import LocalEngine

    return LocalEngine.create(config)


def _require_local(config: TrainingConfig) -> None:
    if is_remote(config.model):
        raise UnsupportedError(
            f"model = {config.model!r} answers behind a server: it can be measured, "
            "with `agentgym eval`, not trained. Train nano, a folder or an id."
        )
    if config.engine != "local":
        raise UnsupportedError(
            f"engine = {config.engine!r} is not part of this version; use "
            "--engine local."
        )
