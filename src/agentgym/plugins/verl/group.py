"""VerlSettings: the group of settings ``verl``, which ``lightning`` reads, too."""

from typing import Any, ClassVar

from agentgym.core.settings import SettingsGroup, setting


class VerlSettings(SettingsGroup):
    """The settings of the engine ``verl``. ``lightning`` reads some of them.

    ``verl: {"trainer.device": cpu}`` is short for
    ``verl: {settings: {"trainer.device": cpu}}``.
    """

    name: ClassVar = "verl"
    further: ClassVar = "settings"
    # Memory and servers. Other settings of verl would change the training.
    may_change: ClassVar = (
        "actor_rollout_ref.rollout.",
        "actor_rollout_ref.actor.ppo_max_token_len_per_gpu",
        "ray_kwargs.",
    )

    nodes: int = setting(
        1,
        "`verl`: number of machines; more than one needs a Ray cluster (RAY_ADDRESS).",
        ge=1,
        le=1000,
        some_engines=True,
    )
    offload: bool = setting(
        False,
        "`verl` and `lightning`: move weights and optimizer to CPU memory while they "
        "are not used.",
        may_change=True,
        some_engines=True,
    )
    settings: dict[str, Any] = setting(
        {},
        "`verl` and `lightning`: further settings of verl, as in "
        "verl.actor_rollout_ref.rollout.max_num_seqs=128.",
        may_change=True,
        some_engines=True,
    )
