"""Whether torch's matrix products use this processor's fast path, for nano's shapes.

    uv run python benchmarks/matrix_products.py

GFLOPS of one thread: float32 as the engine computes it (by torch's default library, MKL
on x86), float32 by oneDNN with weights that are packed beforehand, and bfloat16 by it.
"""

import time
from collections.abc import Callable

import torch
from machine import machine
from torch import Tensor

SHAPES = {
    "query, key, value": (192, 576),
    "gate, up": (192, 1024),
    "down": (512, 192),
    "head": (192, 2560),
}
TOKENS = 8, 32, 128, 2048


@torch.inference_mode()
def main() -> None:
    """Print a table."""
    torch.set_num_threads(1)
    print(f"{machine()}\n\n| layer | tokens | default | oneDNN | oneDNN, bfloat16 |")
    print("|---|---:|---:|---:|---:|")
    for name, (inputs, outputs) in SHAPES.items():
        for tokens in TOKENS:
            states, weight = torch.randn(tokens, inputs), torch.randn(outputs, inputs)
            products = (
                lambda states=states, weight=weight: states @ weight.t(),
                by_onednn(states, weight),
                by_onednn(states.bfloat16(), weight.bfloat16()),
            )
            work = 2e-9 * tokens * inputs * outputs
            cells = (f"{work / fastest(product):.0f}" for product in products)
            print(f"| {name} | {tokens} | {' | '.join(cells)} |")


def by_onednn(states: Tensor, weight: Tensor) -> Callable[[], Tensor]:
    """Return what multiplies by oneDNN."""
    ops = torch.ops.mkldnn
    packed = ops._reorder_linear_weight(weight, len(states))
    return lambda: ops._linear_pointwise(states, packed, None, "none", [], "")


def fastest(product: Callable[[], object]) -> float:
    """Return the seconds of a call, in the fastest of six rounds of 40 ms."""
    product()
    rounds = []
    for _ in range(6):
        calls, began = 0, time.perf_counter()
        while time.perf_counter() - began < 0.04:
            product()
            calls += 1
        rounds.append((time.perf_counter() - began) / calls)
    return min(rounds)


if __name__ == "__main__":
    main()
