"""TRL's trainer, which keeps how far its log-probabilities are from those recorded."""

from typing import Any

import torch
from trl import GRPOTrainer


class Watched(GRPOTrainer):  # type: ignore[misc]
    """Compares at each step, before its update.

    Attributes:
        gaps: The largest distance of a trained token's, in nats, step by step.
        made: The newest one.
    """

    made: "Watched"

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        Watched.made = self
        self.gaps: list[float] = []
        self._before = {
            name: weight.detach().clone()
            for name, weight in self.model.named_parameters()
            if weight.requires_grad
        }

    def _compute_loss(self, model: Any, inputs: dict[str, Any]) -> Any:
        ids = [inputs["prompt_ids"], inputs["completion_ids"]]
        masks = [inputs["prompt_mask"], inputs["completion_mask"]]
        with torch.no_grad():
            found, *_ = self._get_per_token_logps_and_entropies(
                model, torch.cat(ids, 1), torch.cat(masks, 1), ids[1].shape[1]
            )
        mask = inputs["completion_mask"].bool() & inputs["tool_mask"].bool()
        gap = (found - inputs["sampling_per_token_logps"])[mask].abs()
        self.gaps.append(float(gap.max()))
        return super()._compute_loss(model, inputs)

    def check(self, *, steps: int, most: float) -> None:
        """Check that the weights that sampled were the trainer's, which have moved."""
        assert len(self.gaps) == steps
        assert max(self.gaps) < most, self.gaps
        after = dict(self.model.named_parameters())
        moved = [n for n, weight in self._before.items() if not weight.equal(after[n])]
        assert len(moved) >= len(self._before) / 2  # half of a new adapter moves first
