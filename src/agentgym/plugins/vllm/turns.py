"""Turns: estimate how vLLM and the learner share the memory of one GPU.

While vLLM answers requests, the learner keeps its weights and optimizer on the GPU.
During updates vLLM sleeps. All sizes are estimates from the model's ``config.json``.
"""

import math
from dataclasses import dataclass, replace
from typing import Self

from agentgym.core.config import TrainingConfig
from agentgym.engines.device import free_gpu
from agentgym.engines.local.shape import Shape, Use
from agentgym.engines.memory import (
    EPISODES,
    GIB,
    MARGIN,
    MemoryEstimate,
    gib,
    shape_of,
    told_use,
    with_episodes,
)
from agentgym.engines.settings import context_length
from agentgym.errors import NotEnoughMemoryError
from agentgym.plugins.vllm.group import GpuSettings, VllmSettings
from agentgym.plugins.vllm.settings import (
    learner_config,
    memory_share,
    on_cpu,
    shares_gpu,
)

# Assumed GPU memory of vLLM awake for CUDA, CUDA graphs and activations, in addition to
# its weights and KV cache; and of vLLM while it sleeps.
SERVER_BYTES = 5 * GIB // 2
ASLEEP_BYTES = 3 * GIB // 2
_USUAL = 0.5  # vLLM's share of the GPU's memory, if vLLM and the learner fit with it
_HALF = 2  # bytes per number in vLLM, which computes in bfloat16 on a GPU


@dataclass(frozen=True)
class Turns:
    """Memory of one GPU that vLLM and the learner take in turn, in bytes."""

    free: int  # of the GPU
    served: int  # vLLM's weights, the adapter, the cache of the longest conversation
    kept: int  # by the learner while vLLM answers
    update: int  # of the learner during an update, with a margin

    @classmethod
    def of(
        cls, shape: Shape, use: Use, parameters: int | None, *, context: int, free: int
    ) -> Self:
        """Estimate the memory of a model in vLLM and in the learner."""
        learner = MemoryEstimate.of(shape, replace(use, samples=False), parameters)
        numbers = (parameters or shape.parameters) + shape.adapter_parameters(use.rank)
        numbers += context * shape.cache_token + shape.cache_fixed
        return cls(free, _HALF * numbers, learner.kept, int(MARGIN * learner.need))

    @property
    def least(self) -> float:
        """Smallest share of the GPU's memory, 0..1, that is enough for vLLM."""
        return math.ceil(100 * (self.served + SERVER_BYTES) / self.free) / 100

    @property
    def most(self) -> float:
        """Largest share for vLLM, 0..1, that leaves enough for the waiting learner."""
        return math.floor(100 * (1 - self.kept / self.free)) / 100

    @property
    def share(self) -> float | None:
        """Best share for vLLM, 0..1; None if vLLM and the learner do not both fit."""
        if self.least > self.most or self.update + ASLEEP_BYTES > self.free:
            return None
        return min(max(_USUAL, self.least), self.most)

    @property
    def problem(self) -> str:
        """Why the GPU is too small for vLLM and the learner; empty if both fit."""
        if self.share is not None:
            return ""
        words = f"the GPU has {gib(self.free)} GiB free, and "
        if self.least > self.most:
            awake = gib(self.served + SERVER_BYTES)
            return f"{words}vLLM needs {awake} next to {gib(self.kept)} of the learner"
        asleep = gib(ASLEEP_BYTES)
        return f"{words}an update needs {gib(self.update)} next to {asleep} of vLLM"


def turns_of(config: TrainingConfig) -> Turns | None:
    """Estimate how vLLM and the learner share the GPU; None if a size is unknown."""
    known = shape_of(config.model)
    free, has_half = free_gpu()
    if known is None or not free:
        return None
    shape, held = known
    use = told_use(learner_config(config), on_gpu=True, has_half=has_half)
    given = VllmSettings.of(config).settings.get("max_model_len")
    context = given if isinstance(given, int) else context_length(config)
    return Turns.of(shape, use, held, context=context, free=free)


def with_turns(config: TrainingConfig) -> TrainingConfig:
    """Fill in ``gpus.memory_share`` and ``max_episode_tokens`` to fit the GPU's memory.

    Nothing is filled in if the model's size is unknown, or if no values fit, for which
    :func:`check_turns` raises an error. If vLLM and the learner do not share a GPU,
    only ``max_episode_tokens`` is filled in.
    """
    if not shares_gpu(config):
        return with_episodes(config, "cpu" if on_cpu(config) else "cuda", samples=False)
    given = config.max_episode_tokens
    for tokens in EPISODES if given is None else (given,):
        shorter = config.replaced(max_episode_tokens=tokens)
        turns = turns_of(shorter)
        if turns is None:
            return config
        if (share := turns.share) is not None:
            share = GpuSettings.of(config).memory_share or share
            return shorter.replaced(**{"gpus.memory_share": share})
    return config


def check_turns(config: TrainingConfig) -> None:
    """Check that vLLM and the learner fit into one GPU's memory."""
    turns = turns_of(config) if shares_gpu(config) else None
    if turns is None:
        return
    share, free = memory_share(config), turns.free
    if turns.kept > (1 - share) * free:
        raise NotEnoughMemoryError(
            f"gpus.memory_share = {share} leaves {gib(int((1 - share) * free))} of the "
            f"GPU's {gib(free)} GiB free, and the learner of {config.model!r} keeps "
            f"{gib(turns.kept)} GiB while vLLM answers (weights, adapter, optimizer, "
            f"CUDA). {_advice(turns, turns.most, 'less')}"
        )
    if turns.served > share * free:
        raise NotEnoughMemoryError(
            f"gpus.memory_share = {share} gives vLLM {gib(int(share * free))} of the "
            f"GPU's {gib(free)} GiB free, and {config.model!r} takes "
            f"{gib(turns.served)} GiB there: weights, and the cache of one "
            "conversation. "
            f"{_advice(turns, turns.least, 'more')}"
        )


def _advice(turns: Turns, bound: float, side: str) -> str:
    if problem := turns.problem:
        return (
            f"No value is enough: {problem}. Leave --engine out or set it to local, "
            "take a smaller model, or give each a GPU: gpus.per_node = 2."
        )
    return f"Set gpus.memory_share to {bound:g} or {side}, or leave it out."
