"""The groups of settings ``gpus`` and ``vllm``."""

from typing import Any, ClassVar

from agentgym.core.panels import MODEL
from agentgym.core.settings import SettingsGroup, setting


class GpuSettings(SettingsGroup):
    """How the engines ``vllm``, ``verl`` and ``lightning`` share out the GPUs."""

    name: ClassVar = "gpus"
    main: ClassVar = "per_node"

    per_node: int = setting(
        1,
        "GPUs on each machine, with all engines but local. With `vllm` and 1, vLLM and "
        "the learner share the GPU; with more, the learner uses one GPU and vLLM the "
        "others.",
        MODEL,
        option="--gpus-per-node",
        metavar="N",
        ge=1,
        le=1000,
        some_engines=True,
    )
    tensor_parallel: int = setting(
        1,
        "GPUs that share one copy of the sampling model.",
        ge=1,
        le=1000,
        some_engines=True,
    )
    memory_share: float | None = setting(
        None,
        "Share of each GPU's memory for sampling, 0 to 1. None means 0.9 if sampling "
        "has the GPU alone; else the value nearest to 0.5 that gives sampling and "
        "training enough memory.",
        may_change=True,
        gt=0,
        lt=1,
        some_engines=True,
    )


class VllmSettings(SettingsGroup):
    """Flags of ``vllm serve``: ``vllm: {max_num_seqs: 64}``."""

    name: ClassVar = "vllm"
    further: ClassVar = "settings"

    settings: dict[str, Any] = setting(
        {},
        "Further flags of `vllm serve`, as in vllm.max_num_seqs=64.",
        may_change=True,
        some_engines=True,
    )
