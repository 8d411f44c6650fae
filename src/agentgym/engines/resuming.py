"""resumed_config: change settings when a run is resumed."""

from typing import Any

from agentgym.core.config import TrainingConfig
from agentgym.errors import UsageError

_BUDGET = (
    *("episodes", "time", "gpu", "spot", "max_hourly", "max_cost", "warm_start"),
    *("yes", "judge_max_cost"),
)
MACHINE = (
    "memory_share",
    "gradient_checkpointing",
    "offload",
    "workers",
    "concurrency",
    "rollout_timeout_s",
)
"""Settings of memory and speed. They do not change which tokens are trained."""
LIBRARIES = ("vllm", "verl")
MAY_CHANGE = (*_BUDGET, *MACHINE, *LIBRARIES)
_OF_VERL = (
    "actor_rollout_ref.rollout.",
    "actor_rollout_ref.actor.ppo_max_token_len_per_gpu",
    "ray_kwargs.",
)
"""Prefixes of verl's settings for memory and servers. These may change when a run is
resumed; verl's other settings would change the training."""


def resumed_config(before: TrainingConfig, changes: dict[str, Any]) -> TrainingConfig:
    """Return a run's settings with the changes that the user gave when resuming it.

    Flags of vLLM and settings of verl are merged with the run's; a flag or setting with
    the value None is removed.

    Raises:
        UsageError: A changed setting must stay the same.
    """
    given = {name: value for name, value in changes.items() if value is not None}
    if refused := [name for name in given if name not in MAY_CHANGE]:
        raise UsageError(
            f"A resumed run keeps its own settings; leave out: {', '.join(refused)}. "
            f"These may change: {', '.join(MAY_CHANGE)}."
        )
    fixed = [k for k in given.get("verl", {}) if not k.startswith(_OF_VERL)]
    if fixed:
        raise UsageError(
            f"A resumed run keeps the settings of its learner; leave out: verl."
            f"{', verl.'.join(fixed)}. Those below {' and '.join(_OF_VERL)} may change."
        )
    for library in LIBRARIES:
        if library in given:
            merged = {**getattr(before, library), **given[library]}
            kept = {key: value for key, value in merged.items() if value is not None}
            given[library] = kept
    return before.replaced(**given)
