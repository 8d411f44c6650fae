"""ReferencePolicy: keep the policy as before training, for the KL penalty."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import Tensor

from agentgym.engines.local.model import LoadedModel


class ReferencePolicy:
    """The model as it was before training, for the KL penalty in the loss.

    If an adapter is trained, this is the same model with the adapter disabled. If all
    weights are trained, it is a copy of the initial weights. ``coefficient`` is the
    weight of the penalty.
    """

    def __init__(self, loaded: LoadedModel, coefficient: float) -> None:
        self.coefficient = coefficient
        self._loaded = loaded
        if loaded.adapter is None:
            held = copy.deepcopy(loaded.model).requires_grad_(False)
            self._loaded = replace(loaded, model=held)

    @contextmanager
    def model(self) -> Iterator[LoadedModel]:
        """Yield the reference model; do not use the trained model within the block."""
        with torch.no_grad():
            if self._loaded.adapter is None:
                yield self._loaded
            else:
                with self._loaded.adapter.disable_adapter():
                    yield self._loaded


def k3(now: Tensor, reference: Tensor) -> Tensor:
    """Return the k3 estimate of the distance from a reference policy, in nats.

    It is ``r - 1 - log r``, where r is the reference's probability of a sampled token
    divided by the policy's. This estimate of the KL divergence is unbiased and never
    negative (http://joschu.net/blog/kl-approx.html). GRPO uses it (arXiv:2402.03300).
    Both arguments are log-probabilities of tokens, (tokens,).
    """
    apart = reference - now
    return apart.exp() - 1 - apart
