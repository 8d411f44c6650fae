"""Estimate a model's memory from its ``config.json`` before it is loaded.

The estimate is for an engine that trains in this process. It includes the weights, the
copy of the linear layers for sampling with an adapter
(:mod:`agentgym.engines.adapter`), AdamW's two moments, activations for the backward
pass, and the KV cache. Importing this module does not import torch.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Self

from agentgym.core.config import LONGEST_EPISODE, TrainingConfig
from agentgym.engines.device import (
    cpu_has_half,
    free_gpu,
    free_ram,
    usable_cores,
)
from agentgym.engines.lengths import longest_episode
from agentgym.engines.local.shape import FLOAT, SEEN, Shape, Use
from agentgym.engines.settings import adapted_roles
from agentgym.errors import NotEnoughMemoryError
from agentgym.models.folder import (
    SMALL_PARAMETERS,
    base_folder,
    count_parameters,
    held_rank,
    is_small,
    model_source,
    new_rank,
    read_json,
)

LIBRARIES = ("torch", "transformers", "peft", "safetensors")
"""Packages needed to train in this process."""
GIB = 2**30
CACHE_BYTES = 4 * GIB
"""Largest KV cache of running responses on a CPU, in bytes."""
EPISODES = (LONGEST_EPISODE, 4096, 2048)
"""Possible defaults of ``max_episode_tokens`` on a GPU. The first value for which the
memory is enough is used."""
MARGIN = 1.05
"""Factor on estimates when settings are chosen automatically. Published measurements of
models of 7 and 14 billion parameters are up to 8 % higher (docs/gpu_training.md)."""
_CHUNK_TOKENS = 1024
_LARGE_TREES = (8192, 4096, 2048)
"""Limits for the nodes of a prefix tree, to try in this order. 3,200 nodes hold eight
attempts that share 800 tokens and have 300 of their own; 1,024 hold one of them."""
_KEPT_TOKENS = (32768, 16384, 8192, 6144, 4096, 3072, 2048, 1024)
"""Possible values of :attr:`.Use.kept`, to try in this order."""
_ROOM = 0.5
"""With values of these two, training takes at most this share of free memory."""
_VOCABULARY_FLOATS = 2**27
PREDICTED_FLOATS = 2**26
"""Most logits that an update holds; more are computed in blocks, and again backward."""
_CUDA_BYTES = 3 * GIB // 4
_LOGITS = 5
"""Number of float32 tensors as large as the logits: the logits, the log-probabilities,
two for the entropy, and a gradient."""


def micro_batch(vocabulary: int) -> tuple[int, int]:
    """Return the most tokens of a micro-batch, and the most nodes of a prefix tree.

    A sequence with more tokens is a micro-batch of its own.
    """
    most = _VOCABULARY_FLOATS // vocabulary
    chunk = max(512, min(_CHUNK_TOKENS, most))
    return chunk, max(_CHUNK_TOKENS, min(3 * _CHUNK_TOKENS // 2, most))


def roomy_use(config: TrainingConfig, device: str) -> tuple[int | None, int]:
    """Return ``nodes`` and ``kept`` of the fastest :class:`.Use` that fits."""
    known = shape_of(config.model)
    if known is None or config.deterministic:
        return None, 0
    use = _with_room(*known, *_use(config, device))
    return use.nodes, use.kept


def _use(
    config: TrainingConfig, device: str, *, samples: bool = True
) -> tuple[Use, int | None]:
    """Return how a run trains its model, and the device's free memory in bytes."""
    if device == "cuda":
        free, has_half = free_gpu()
    else:
        is_exact = config.deterministic or is_small(config.model)
        free, has_half = free_ram(), cpu_has_half() and not is_exact
    use = told_use(config, on_gpu=device == "cuda", has_half=has_half)
    return replace(use, samples=samples), free


def _with_room(shape: Shape, held: int | None, use: Use, free: int | None) -> Use:
    """Return the fastest way to train within half of the free memory (or the needed).

    In larger prefix trees, more sequences share a prefix; an update that computes no
    layers again needs a quarter less arithmetic. A small model keeps ``use``.
    """
    if free is None or (held or shape.parameters) < SMALL_PARAMETERS:
        return use

    def first(ways: Iterable[Use]) -> Use:
        most = max(_ROOM * free, MemoryEstimate.of(shape, use, held).need)
        fitting = (w for w in ways if MemoryEstimate.of(shape, w, held).need <= most)
        return next(fitting, use)

    use = first(replace(use, nodes=nodes) for nodes in _LARGE_TREES)
    if use.recomputes is None:
        use = first(replace(use, kept=kept) for kept in _KEPT_TOKENS)
    return use


def with_episodes(
    config: TrainingConfig, device: str, *, samples: bool = True
) -> TrainingConfig:
    """Fill in ``max_episode_tokens`` with the largest value that fits a GPU's memory.

    The setting stays unset on a CPU, if the sizes are unknown, or if no value fits
    (see :func:`check_memory`). ``samples`` is whether this process also samples.
    """
    if config.max_episode_tokens is not None or device != "cuda":
        return config
    known = shape_of(config.model)
    use, free = _use(config, device, samples=samples)
    if known is None or free is None:
        return config
    for tokens in EPISODES:
        shorter = config.replaced(max_episode_tokens=tokens)
        use = replace(use, longest=longest_episode(shorter))
        if MARGIN * MemoryEstimate.of(known[0], use, known[1]).need <= free:
            return shorter
    return config


@dataclass(frozen=True)
class MemoryEstimate:
    """Memory that a model takes during training, in bytes.

    Attributes:
        weights: The loaded weights.
        copies: Copies of weights for sampling; a GPU with little memory has none.
        adapter: The adapter's weights; 0 without an adapter.
        gradients: Gradients of the trained weights.
        optimizer: AdamW's two moments.
        activations: Peak of activations and temporary tensors in an update.
        least_cache: Keys and values of one episode; 0 if another process samples.
        overhead: CUDA's own memory; 0 on a CPU.
    """

    weights: int
    copies: int
    adapter: int
    gradients: int
    optimizer: int
    activations: int
    least_cache: int
    overhead: int

    @classmethod
    def of(cls, shape: Shape, use: Use, parameters: int | None = None) -> Self:
        """Estimate the memory of a model."""
        held = parameters or shape.parameters
        size = 2 if use.rank and use.is_half else FLOAT
        is_small = held < SMALL_PARAMETERS and not use.on_gpu
        added = use.adapters * shape.adapter_parameters(use.rank)
        trained = FLOAT * (added or held)
        copied = 0
        if use.rank and use.samples:  # a copy of merged weights, or only of adapters
            is_merged = size == FLOAT and use.adapters == 1
            copied = shape.linear_parameters if is_merged else added
        if use.samples and is_small and shape.kind == "llama":
            # The copy of FusedLlama, with the output head.
            copied += shape.linear_parameters + shape.vocabulary * shape.hidden
        longest = min(use.longest, shape.context)
        cached = longest * shape.cache_token + shape.cache_fixed
        large = use.recomputes is None and held >= SMALL_PARAMETERS
        parts = use.cores if is_small else 1
        recomputes = bool(use.recomputes) or large
        activations = _activations(
            shape, use, size=size, parts=parts, recomputes=recomputes
        )
        if use.kept and use.recomputes is None:
            # One sequence, or a tree whose prefix is as long as the rest.
            prefix = min(use.kept // (1 if shape.obstacles else 2), shape.context)
            most = replace(use, longest=prefix, nodes=use.kept - prefix)
            kept = _activations(shape, most, size=size, parts=parts, recomputes=False)
            activations = max(activations, kept)
        if parts > 1:  # each parallel part has its own gradients
            activations += parts * trained
        weights = size * held
        if use.compares and not use.rank:  # a copy of the untrained model
            weights *= 2
        return cls(
            weights=weights,
            copies=size * copied,
            adapter=FLOAT * added,
            gradients=trained,
            optimizer=2 * trained,
            activations=activations,
            least_cache=cached * size * use.samples,
            overhead=_CUDA_BYTES if use.on_gpu else 0,
        )

    @property
    def kept(self) -> int:
        """Bytes that stay in memory between updates, while another process samples."""
        return self.weights + self.adapter + self.optimizer + self.overhead

    @property
    def need(self) -> int:
        """Fewest bytes with which training is possible.

        A GPU needs no copies to sample from.
        """
        copies = 0 if self.overhead else self.copies
        learning = self.gradients + self.activations
        return self.kept + learning + copies + self.least_cache

    def words(self) -> str:
        """Describe the parts in GiB, e.g. ``weights 2.9, activations 1.2``."""
        kind, trained = "copy", "gradients and optimizer"
        if self.adapter:
            is_merged = self.copies > self.adapter  # not in bfloat16
            kind = "merged copy" if is_merged else "copy of the adapter"
            trained = f"adapter, {trained}"
        parts = {
            "weights": self.weights,
            f"a {kind} to sample from": 0 if self.overhead else self.copies,
            trained: self.adapter + self.gradients + self.optimizer,
            "activations": self.activations,
            "KV cache of one rollout": self.least_cache,
            "CUDA": self.overhead,
        }
        return ", ".join(f"{name} {gib(size)}" for name, size in parts.items() if size)


def _activations(
    shape: Shape, use: Use, *, size: int, parts: int, recomputes: bool
) -> int:
    """Return the peak memory of activations in an update, in bytes.

    It is the larger one of two cases: one sequence of the longest length, and a tree of
    sequences after a prefix of that length. A CPU computes trees of a small model in
    parallel.
    """
    longest = min(use.longest, shape.context)
    least = max(micro_batch(shape.vocabulary))
    nodes = use.nodes or least
    key = shape.cache_token // (2 * shape.layers)
    spread = shape.heads // shape.key_heads if use.on_gpu else 1
    branches = SEEN * max(1, -(-nodes // least))
    seen = branches * longest * 2 * key * size * spread
    head = 2 * longest * 2 * key * size  # keys, values and their gradients
    cases = [(0, longest, parts), (longest, nodes, parts)]
    if shape.obstacles:  # separate sequences in parallel
        cases, seen = [(0, longest, 1)], 0
    found = []
    for below, above, side in cases:
        tokens = below + side * above
        largest, layers = shape.kept(tokens, use.rank, size)
        layer = largest + parts * seen
        if recomputes:
            inputs = tokens * shape.hidden * size + head
            kept = shape.layers * inputs + 2 * layer
        else:
            kept = layers + shape.layers * parts * seen + layer
        predicted = min(above, max(1, PREDICTED_FLOATS // shape.vocabulary))
        logits = predicted * shape.vocabulary * (_LOGITS * FLOAT + size)
        masks = above * longest * size
        states = tokens * shape.hidden * FLOAT
        side_by_side = parts if shape.obstacles else 1
        found.append(side_by_side * (kept + states) + parts * (logits + masks))
    return max(found)


def cheaper(
    shape: Shape, use: Use, parameters: int | None = None
) -> Iterator[tuple[str, int]]:
    """Yield changes of settings that save memory, and the bytes needed after each."""
    changes: list[tuple[str, bool, Any]] = [
        ("lora_rank = 16", not use.rank, {"rank": 16}),
        ("gradient_checkpointing = true", True, {"recomputes": True}),
        ("precision = 'bf16'", not use.is_half, {"is_half": True}),
        ("max_episode_tokens = 2048", use.longest > 2048, {"longest": 2048}),
    ]
    before = MemoryEstimate.of(shape, use, parameters).need
    for words, applies, change in changes:
        changed = replace(use, **change)
        need = MemoryEstimate.of(shape, changed, parameters).need
        if applies and need < before:
            yield words, need
            use, before = changed, need


def gib(size: int) -> str:
    """Format bytes as GiB: with two decimals below 1 GiB, else with one."""
    return f"{size / GIB:.2f}" if size < GIB else f"{size / GIB:.1f}"


def told_use(config: TrainingConfig, *, on_gpu: bool, has_half: bool) -> Use:
    """Return how a run's settings train its model."""
    return Use(
        rank=held_rank(Path(model_source(config.model)))
        or new_rank(config.model, config.lora_rank),
        is_half=config.precision == "bf16" or (config.precision == "auto" and has_half),
        recomputes=config.gradient_checkpointing,
        longest=longest_episode(config),
        on_gpu=on_gpu,
        cores=usable_cores(),
        adapters=max(1, len(adapted_roles(config))),
        compares=config.kl_coefficient > 0,
    )


def shape_of(model: str, *, fetch: bool = False) -> tuple[Shape, int | None] | None:
    """Return a model's sizes, and the number of parameters in its files.

    The number is None if the sizes are measured, since :meth:`.Shape.of` does not
    know the architecture. The result is None if ``config.json`` is not on this machine
    (and ``fetch`` is false), or if torch is needed to measure and is not installed.
    """
    folder = base_folder(model_source(model), fetch=fetch)
    if folder is None:
        return None
    shape = Shape.of(read_json(folder / "config.json"))
    if shape is not None:
        return shape, count_parameters(folder)
    if any(find_spec(library) is None for library in LIBRARIES):
        return None
    return _measured(model, folder, (folder / "config.json").stat().st_mtime_ns), None


@lru_cache(maxsize=8)
def _measured(model: str, folder: Path, changed: int) -> Shape:
    from agentgym.engines.local.memory_measurement import measure  # imports torch

    return measure(model, folder)


def check_memory(
    config: TrainingConfig,
    device: str,
    *,
    fetch: bool = False,
    samples: bool = True,
    others: int = 0,
) -> str:
    """Check that training a model fits into memory; describe the memory it takes."""
    known = shape_of(config.model, fetch=fetch)
    if known is None:
        return ""
    shape, held = known
    use, free = _use(config, device, samples=samples)
    if samples and not config.deterministic:
        use = _with_room(shape, held, use, free)
    estimate = MemoryEstimate.of(shape, use, held)
    if free is None:
        return f"at most {gib(estimate.need)} GiB: {estimate.words()}"
    # Several parallel threads rarely have their longest episode at the same time.
    alone = MemoryEstimate.of(shape, replace(use, cores=1), held)
    if alone.need + others <= free:
        return f"at most {gib(estimate.need)} of {gib(free)} GiB: {estimate.words()}"
    less = [f"{words} ({gib(need)} GiB)" for words, need in cheaper(shape, use, held)]
    lower = f"These together need less: {', '.join(less)}. " if less else ""
    where = "the GPU" if use.on_gpu else "this machine"
    kept = f", {gib(others)} of them for vLLM, which sleeps" if others else ""
    raise NotEnoughMemoryError(
        f"Training {config.model!r} takes up to {gib(estimate.need)} GiB, and {where} "
        f"has {gib(free)} GiB free{kept}: {estimate.words()}. {lower}Or take a smaller "
        "model, or several GPUs with --engine verl."
    )
