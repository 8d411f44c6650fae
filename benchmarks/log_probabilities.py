"""Log-probabilities and entropies of an update: torch's operations, and ours.

    uv run python benchmarks/log_probabilities.py [--vocabulary 151936] [--width 896]

Both begin with the last layer's output and end with its gradient, in bfloat16, so that
the product with the output head is part of both. Runs take turns; the least counts.
"""

import argparse
import time
from collections.abc import Callable

import torch
from machine import machine

from agentgym.engines.local.covered import GrammarMasks
from agentgym.engines.local.loss import TokenStatistics

type Statistics = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]


def main() -> None:
    """Time some numbers of positions, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vocabulary", type=int, default=151_936)
    parser.add_argument("--width", type=int, default=896)
    parser.add_argument("--positions", type=int, nargs="+", default=[60, 400])
    parser.add_argument("--runs", type=int, default=6)
    options = parser.parse_args()
    torch.manual_seed(0)
    head = torch.randn(options.width, options.vocabulary).bfloat16()
    print(f"{machine()}\n\n| positions | torch ms | ours ms |\n|---:|---:|---:|")
    for count in options.positions:
        states = (torch.randn(count, options.width) / 10).bfloat16()
        tokens = torch.randint(options.vocabulary, (count,))
        weights = torch.randn(2, count)
        ways = (plain(tokens), ours(tokens))
        found: list[list[float]] = [[], []]
        for _ in range(options.runs):
            for times, way in zip(found, ways, strict=True):
                times.append(timed(way, states, head, weights))
        before, after = (1000 * min(times) for times in found)
        print(f"| {count} | {before:.0f} | {after:.0f} |", flush=True)


def plain(tokens: torch.Tensor) -> Statistics:
    """Return the formulas, one operation after the other."""

    def compute(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logprobs = torch.log_softmax(logits.float(), -1)
        entropy = -(logprobs.exp() * logprobs).sum(-1)
        return logprobs.gather(-1, tokens[:, None])[:, 0], entropy

    return compute


def ours(tokens: torch.Tensor) -> Statistics:
    """Return what an update computes."""
    held = GrammarMasks.of([], tokens.device)._replace(
        which=torch.full_like(tokens, -1)
    )

    def compute(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        made: tuple[torch.Tensor, torch.Tensor] = TokenStatistics.apply(
            logits, tokens, held, 1.0
        )
        return made

    return compute


def timed(
    compute: Statistics,
    states: torch.Tensor,
    head: torch.Tensor,
    weights: torch.Tensor,
) -> float:
    """Return the seconds of a forward and a backward pass."""
    given = states.clone().requires_grad_()
    began = time.perf_counter()
    (torch.stack(compute(given @ head)) * weights).sum().backward()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
