"""Muon for the matrices, AdamW for embeddings and norms."""

import torch
from torch import Tensor

from recipes.nano.model import Nano


class Optimizer:
    """One step of both, on clipped gradients.

    Muon (Jordan et al. 2024) orthogonalises the momentum by five Newton-Schulz
    iterations; its update is scaled by 0.2 * sqrt(longest side) to match AdamW's
    (Liu et al., arXiv:2502.16982), so that one learning rate serves both.
    """

    def __init__(self, model: Nano, peak: float, clip: float = 1.0) -> None:
        self.model, self.peak, self.clip = model, peak, clip
        self.state: dict[str, dict[str, Tensor]] = {}
        self.steps = 0

    @torch.no_grad()
    def step(self, share: float) -> None:
        """Update at ``share`` of the peak rate and forget the gradients."""
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
        rate = self.peak * share
        same: dict[torch.Size, list[tuple[Tensor, Tensor]]] = {}
        for name, weight in self.model.named_parameters():
            assert weight.grad is not None
            if name.startswith("blocks.") and weight.ndim == 2:
                state = self.state.setdefault(name, {"m": torch.zeros_like(weight)})
                state["m"].lerp_(weight.grad, 0.05)
                nesterov = weight.grad.lerp(state["m"], 0.95)
                same.setdefault(weight.shape, []).append((weight, nesterov))
            else:
                self._adam(name, weight, rate)
            weight.grad = None
        for shape, pairs in same.items():
            updates = orthogonal(torch.stack([u for _, u in pairs]))
            for (weight, _), update in zip(pairs, updates, strict=True):
                weight.mul_(1 - 0.05 * rate)
                weight.add_(update, alpha=-rate * 0.2 * max(shape) ** 0.5)

    def _adam(self, name: str, weight: Tensor, rate: float) -> None:
        state = self.state.setdefault(
            name,
            {k: torch.zeros_like(weight) for k in ("m", "v")} | {"t": torch.zeros(())},
        )
        assert weight.grad is not None
        state["t"] += 1
        state["m"].lerp_(weight.grad, 0.1)
        state["v"].lerp_(weight.grad.square(), 0.02)
        t = float(state["t"])
        mean, var = state["m"] / (1 - 0.9**t), state["v"] / (1 - 0.98**t)
        weight.sub_(rate * mean / (var.sqrt() + 1e-8))


def orthogonal(matrices: Tensor) -> Tensor:
    """Return the nearest semi-orthogonal matrices, roughly; (n, rows, columns)."""
    x = matrices.to(torch.bfloat16)
    tall = x.shape[1] > x.shape[2]
    x = x.mT if tall else x
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(5):
        a = x @ x.mT
        b = -4.7750 * a + 2.0315 * a @ a
        x = 3.4445 * x + b @ x
    return (x.mT if tall else x).float()
