"""Read a run's settings for engines."""

from pathlib import Path
from typing import Any

from agentgym.core.config import Algorithm, TrainingConfig
from agentgym.engines.credit import DAPO_DRAWS
from agentgym.errors import ModelError
from agentgym.models.folder import (
    ADAPTER_FILE,
    held_adapter,
    model_source,
    read_json,
)

_CONTEXT = 8192
_ALGORITHMS: dict[Algorithm, str] = {
    "rloo": "each attempt is compared with the others at its task",
    "grpo": "each attempt is compared with its group, in standard deviations",
    "dr_grpo": "each attempt is compared with its group's mean",
    "dapo": "as grpo, each token weighs the same, and groups of equal rewards are "
    f"replaced (up to {DAPO_DRAWS} draws of tasks a step)",
    "reinforce++": "each attempt is compared with all attempts of the step",
    "ppo": "each token is compared with a value model, which is trained as well",
}


def base_source(model: str) -> str:
    """Return the folder or id of a model's weights, or of an adapter's base model."""
    source = Path(model_source(model))
    adapter = held_adapter(source)
    if adapter is None:
        return str(source)
    base = read_json(adapter / ADAPTER_FILE).get("base_model_name_or_path")
    if not isinstance(base, str):
        raise ModelError(f"The adapter in {adapter} does not name its base model.")
    return model_source(base)


def adapted_roles(config: TrainingConfig) -> tuple[str, ...]:
    """Return the agents of a team that each get an adapter; empty if all share one."""
    return config.train_roles or () if config.role_adapters else ()


def context_length(config: TrainingConfig) -> int:
    """Return the limit of prompt and answer together, in tokens; at most 8192."""
    folder = Path(base_source(config.model)) / "config.json"
    known = read_json(folder) if folder.exists() else {}
    text = known.get("text_config")  # of a model of text and images
    known = text if isinstance(text, dict) else known
    longest = known.get("max_position_embeddings")
    return min(_CONTEXT, longest if isinstance(longest, int) and longest else _CONTEXT)


def objective_words(config: TrainingConfig) -> str:
    """Describe the training objective in words: the algorithm, and the KL penalty."""
    words = f"{config.algorithm}: {_ALGORITHMS[config.algorithm]}"
    if config.kl_coefficient:
        words += f"; KL penalty against the untrained model, {config.kl_coefficient:g}"
    return words


def log_file(config: TrainingConfig) -> Path:
    """Return the path of an engine's log, in the run's folder or the output folder."""
    if config.name and (run := config.output / config.name).is_dir():
        return run / f"{config.engine}.log"
    return config.output / f"{config.scenario_name}-{config.engine}.log"


def flat(values: dict[str, Any], above: str = "") -> dict[str, Any]:
    """Flatten nested mappings: ``{"a": {"b": 1}}`` becomes ``{"a.b": 1}``."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{above}{key}"
        if isinstance(value, dict) and value:
            found |= flat(value, f"{name}.")
        else:
            found[name] = value
    return found
