"""Sampling: one token per row, from each request's own random stream."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def random_stream(seed: int, count: int) -> NDArray[np.float32]:
    """Return ``count`` uniform numbers in [0, 1) that depend on ``seed`` alone."""
    generator = np.random.Generator(np.random.Philox(abs(seed)))
    return generator.random(count, dtype=np.float32)


def sample(
    logits: Tensor, temperatures: Tensor, uniforms: Tensor
) -> tuple[list[int], list[float]]:
    """Sample by inversion of the cumulative distribution; rows are independent.

    Args:
        logits: (rows, vocabulary).
        temperatures: (rows,); 0 takes the likeliest token.
        uniforms: (rows,), in [0, 1).

    Returns:
        A token per row, and its natural log-probability under the distribution it
        was sampled from. A greedy token's is that of temperature 1: under its own
        point mass every token's would be 0.
    """
    greedy = temperatures == 0
    scale = torch.where(greedy, 1.0, temperatures)
    log_probabilities = torch.log_softmax(logits.float() / scale[:, None], dim=-1)
    cumulative = log_probabilities.exp().cumsum(-1)
    # The factor keeps rounding from reaching the total, past the last token.
    targets = uniforms * cumulative[:, -1] * (1 - 1e-6)
    tokens = torch.searchsorted(cumulative, targets[:, None], right=True)
    if bool(greedy.any()):
        tokens = torch.where(greedy[:, None], logits.argmax(-1, keepdim=True), tokens)
    chosen = log_probabilities.gather(-1, tokens)
    return tokens[:, 0].tolist(), chosen[:, 0].tolist()
