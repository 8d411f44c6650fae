"""What each GPU is given to do, and the estimates beside published measurements.

    python benchmarks/gpu_recipes.py

Tables of docs/gpu_training.md, by the estimates from which `agentgym train` chooses:
nothing is downloaded or measured.
"""

from dataclasses import replace
from typing import NamedTuple

from random_qwen import settings

from agentgym.engines.local.shape import Shape, Use
from agentgym.engines.memory import EPISODES, GIB, MARGIN, MemoryEstimate
from agentgym.plugins.vllm.support import ASLEEP_BYTES, SERVER_BYTES, Turns

SIZES = ("0.5b", "1.5b", "3b", "7b")
CARDS = (12, 24, 48, 80)
"""The memory in a GPU's name, in GB."""
FREE = 0.93
"""Share of that which is free on an idle GPU, in GiB: an L4 of 24 GB has 22.5."""
RANK, CONTEXT = 16, 8192
LENGTHS = (256, 512, 1024, 2048, 4096, 8192)
PUBLISHED: dict[str, tuple[tuple[int, ...], tuple[float, ...]]] = {
    "Qwen-1.8B": ((2048, 5504, 24, 16, 151_936), (6.7, 7.4, 8.4, 11.0, 16.2, 21.8)),
    "Qwen-7B": ((4096, 11_008, 32, 32, 151_936), (20.1, 20.4, 21.5, 23.8, 29.7, 36.6)),
    "Qwen-14B": ((5120, 13_696, 40, 40, 152_064), (34.6, 35.1, 35.3, 37.4, 42.5, 55.2)),
}
"""Measured by Qwen's authors with LoRA on an A100, by tokens of one sequence: widths of
layer and perceptron, layers, heads and vocabulary; then G of memory.

From https://github.com/QwenLM/Qwen, README.md, "Profiling of Memory and Speed":
bfloat16, gradient checkpointing, FlashAttention 2, one sequence at a time. Its script's
LoRA has rank 64."""
PUBLISHED_RANK = 64


class Choice(NamedTuple):
    """What a GPU is given to do.

    Attributes:
        engine: ``vllm``, ``local``, or "" if the model does not fit.
        tokens: ``max_episode_tokens``.
        share: ``gpus.memory_share``; 0 without vLLM.
        peak: Most GiB of an update, with vLLM asleep beside it, and a margin.
    """

    engine: str
    tokens: int
    share: float
    peak: float


def shape_of(size: str) -> Shape:
    """Return the sizes of Qwen2.5 by the number in its name."""
    shape = Shape.of({"model_type": "qwen2", **settings(size)})
    assert shape is not None
    return shape


def free_bytes(card: int) -> int:
    """Return the free memory of an idle GPU."""
    return int(FREE * card * GIB)


def choose(size: str, card: int) -> Choice:
    """Return what a GPU is given to do: vLLM if there is room, and long episodes."""
    shape, free = shape_of(size), free_bytes(card)
    uses = [Use(RANK, is_half=True, on_gpu=True, longest=tokens) for tokens in EPISODES]
    for use in uses:
        turns = Turns.of(shape, use, None, context=CONTEXT, free=free)
        if turns.share is not None:
            peak = (turns.update + ASLEEP_BYTES) / GIB
            return Choice("vllm", use.longest, turns.share, peak)
    for use in uses:
        need = MARGIN * MemoryEstimate.of(shape, use).need
        if need <= free:
            return Choice("local", use.longest, 0.0, need / GIB)
    return Choice("", 0, 0.0, need / GIB)


def cell(size: str, card: int) -> str:
    """Return a cell of the table."""
    found = choose(size, card)
    if not found.engine:
        return f"no: {found.peak:.1f} GiB at least"
    share = f", share {found.share:g}" if found.share else ""
    return f"`{found.engine}`{share}; {found.tokens:,} tokens; {found.peak:.1f} GiB"


def table() -> list[str]:
    """Return the lines of the table."""
    lines = [
        f"| Qwen2.5 | {' | '.join(f'{card} GB' for card in CARDS)} |",
        f"|---|{'---|' * len(CARDS)}",
    ]
    for size in SIZES:
        cells = " | ".join(cell(size, card) for card in CARDS)
        lines.append(f"| {size.upper()} | {cells} |")
    return lines


def settings_table() -> list[str]:
    """Return the lines of the table of settings that take more or less memory."""
    usual = Use(RANK, is_half=True, on_gpu=True)
    short = replace(usual, longest=2048)
    uses = {
        "rollouts of 8,192 tokens": usual,
        "`max_episode_tokens: 2048`": short,
        "`gradient_checkpointing: false`, 2,048 tokens": replace(
            short, recomputes=False
        ),
        "all weights (`lora_rank: 0`)": replace(usual, rank=0),
    }
    lines = [
        f"| `local`, Qwen2.5 | {' | '.join(size.upper() for size in SIZES)} |",
        f"|---|{'---|' * len(SIZES)}",
    ]
    for words, use in uses.items():
        needs = [MemoryEstimate.of(shape_of(size), use).need / GIB for size in SIZES]
        lines.append(f"| {words} | {' | '.join(f'{need:.1f}' for need in needs)} |")
    return lines


def compare(name: str) -> list[tuple[float, float]]:
    """Return the measured memory and the learner's estimate, by length."""
    (hidden, inner, layers, heads, vocabulary), measured = PUBLISHED[name]
    shape = Shape.of(
        {
            "model_type": "qwen2",
            "hidden_size": hidden,
            "intermediate_size": inner,
            "num_hidden_layers": layers,
            "num_attention_heads": heads,
            "num_key_value_heads": heads,
            "vocab_size": vocabulary,
            "max_position_embeddings": max(LENGTHS),
        }
    )
    assert shape is not None
    found = []
    for tokens, figure in zip(LENGTHS, measured, strict=True):
        use = Use(
            PUBLISHED_RANK, is_half=True, on_gpu=True, longest=tokens, samples=False
        )
        found.append((figure, MemoryEstimate.of(shape, use).need / GIB))
    return found


def published_table() -> list[str]:
    """Return the lines of the table of published measurements."""
    lines = [
        f"| measured / estimated | {' | '.join(f'{each:,}' for each in LENGTHS)} |",
        f"|---|{'---|' * len(LENGTHS)}",
    ]
    for name in PUBLISHED:
        cells = [f"{m:.1f} / {e:.1f} ({e / m:.2f})" for m, e in compare(name)]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return lines


def main() -> None:
    """Print all tables."""
    print("\n".join(table()))
    awake, asleep = SERVER_BYTES / GIB, ASLEEP_BYTES / GIB
    print(
        f"\nLoRA rank {RANK}; {FREE:.0%} of each GPU's memory free; a margin of ",
        end="",
    )
    print(f"{MARGIN - 1:.0%}. vLLM is assumed to take {awake:.1f} GiB besides weights ")
    print(f"and cache, and {asleep:.1f} GiB asleep.\n")
    for lines in (settings_table(), published_table()):
        print("\n".join([*lines, ""]))


if __name__ == "__main__":
    main()
