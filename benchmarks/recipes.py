"""Which engine and length of episodes each GPU gets: the table of docs/gpu_training.md.

    python benchmarks/recipes.py

From the estimates by which `agentgym train` chooses: nothing is downloaded or measured.
"""

from typing import NamedTuple

from random_qwen import settings

from agentgym.engines.local.shape import CountedShape, Use
from agentgym.engines.memory import EPISODES, GIB, MARGIN, MemoryEstimate
from agentgym.engines.vllm.turns import ASLEEP_BYTES, SERVER_BYTES, Turns

SIZES = ("0.5b", "1.5b", "3b", "7b")
CARDS = (12, 24, 48, 80)
"""The memory in a GPU's name, in GB."""
FREE = 0.93
"""Share of that which is free on an idle GPU, in GiB: an L4 of 24 GB has 22.5."""
RANK, CONTEXT = 16, 8192


class Choice(NamedTuple):
    """What a GPU is given to do.

    Attributes:
        engine: ``vllm``, ``local``, or "" if the model does not fit.
        tokens: ``max_episode_tokens``.
        share: ``memory_share``; 0 without vLLM.
        peak: Most GiB of an update, with vLLM asleep beside it, and a margin.
    """

    engine: str
    tokens: int
    share: float
    peak: float


def shape_of(size: str) -> CountedShape:
    """Return the sizes of Qwen2.5 by the number in its name."""
    shape = CountedShape.of({"model_type": "qwen2", **settings(size)})
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


def main() -> None:
    """Print the table."""
    print("\n".join(table()))
    awake, asleep = SERVER_BYTES / GIB, ASLEEP_BYTES / GIB
    print(f"\nLoRA rank {RANK}; {FREE:.0%} of each GPU's memory free; a margin of ", end="")
    print(f"{MARGIN - 1:.0%}. vLLM is assumed to take {awake:.1f} GiB besides weights ")
    print(f"and cache, and {asleep:.1f} GiB asleep.")


if __name__ == "__main__":
    main()
