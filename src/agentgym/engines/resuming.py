"""resumed_config: change settings when a run is resumed."""

from typing import Any

from agentgym.core.config import TrainingConfig
from agentgym.errors import UsageError

_BUDGET = (
    *("episodes", "time", "gpu", "rent.spot", "rent.max_hourly", "rent.max_cost"),
    *("warm_start", "yes", "judge.max_cost"),
)
MACHINE = (
    "memory_share",
    "gradient_checkpointing",
    "verl.offload",
    "workers",
    "concurrency",
    "rollout_timeout_s",
)
"""Settings of memory and speed. They do not change which tokens are trained."""
LIBRARIES = ("vllm", "verl.settings")
MAY_CHANGE = (*_BUDGET, *MACHINE, *LIBRARIES)
_OF_VERL = (
    "actor_rollout_ref.rollout.",
    "actor_rollout_ref.actor.ppo_max_token_len_per_gpu",
    "ray_kwargs.",
)
"""Prefixes of verl's settings for memory and servers. These may change when a run is
resumed; verl's other settings would change the training."""


def resumed_config(before: TrainingConfig, changes: dict[str, Any]) -> TrainingConfig:
    """Return a run's settings with the changes that the user gave when resuming it."""
    given = {name: value for name, value in changes.items() if value is not None}
    if refused := refused_changes(given):
        raise UsageError(
            f"A resumed run keeps its own settings; leave out: {', '.join(refused)}. "
            f"These may change: {', '.join(MAY_CHANGE)}."
        )
    given = before.flat(given)
    fixed = [k for k in given.get("verl.settings", {}) if not k.startswith(_OF_VERL)]
    if fixed:
        raise UsageError(
            f"A resumed run keeps the settings of its learner; leave out: verl."
            f"{', verl.'.join(fixed)}. Those below {' and '.join(_OF_VERL)} may change."
        )
    given = merged_changes(before, given)
    for library in given.keys() & LIBRARIES:
        merged = given[library].items()
        given[library] = {key: value for key, value in merged if value is not None}
    return before.replaced(**given)


def refused_changes(changes: dict[str, Any]) -> list[str]:
    """Return the names of the settings in ``changes`` that must stay the same."""
    names = {name: TrainingConfig.flat({name: changes[name]}) for name in changes}
    return [name for name in names if not names[name].keys() <= {*MAY_CHANGE}]


def merged_changes(config: TrainingConfig, changes: dict[str, Any]) -> dict[str, Any]:
    """Return flat changes in which flags of vLLM and settings of verl are complete."""
    before, given = config.flat(config.model_dump()), config.flat(changes)
    libraries = given.keys() & LIBRARIES
    return given | {name: {**before[name], **given[name]} for name in libraries}
