"""The fused forward pass gives the model's own logits."""

from itertools import product
from pathlib import Path

import pytest
import torch

from agentgym.engines.local.forward import BatchForward
from agentgym.engines.local.loading import LoadedModel, load_model


@pytest.fixture
def loaded(model_folder: Path) -> LoadedModel:
    return load_model(str(model_folder), device="cpu", rank=0, seed=0)


def played(forward: BatchForward) -> list[torch.Tensor]:
    """Prefill rows of different lengths, go on, decode with and without sharing.

    Each decoding step adds one token to a row, or several to some rows.
    """
    generator = torch.Generator().manual_seed(0)

    def tokens(count: int) -> list[int]:
        return torch.randint(5, 250, (count,), generator=generator).tolist()

    head = tokens(20)
    found = [
        forward.prefill(0, [[*head, *tokens(n)] for n in (3, 40, 1, 17)], [0] * 4),
        forward.prefill(1, [tokens(5), tokens(2)], [60, 21]),
    ]
    lengths = [23, 65, 23, 37]
    for shared, counts in product((20, 0, 20), ((1, 1, 1, 1), (1, 4, 2, 9))):
        ids = [tokens(count) for count in counts]
        found.append(forward.step(ids, lengths, shared_prefix=shared))
        assert len(found[-1]) == sum(counts)
        lengths = [
            length + count for length, count in zip(lengths, counts, strict=True)
        ]
    return found


@torch.no_grad()
def test_fused_weights_give_the_same_logits_also_after_an_update(
    loaded: LoadedModel,
) -> None:
    plain = BatchForward(loaded, 8, fused=False)
    fused = BatchForward(loaded, 8)
    before = played(fused)
    for one, other in zip(played(plain), before, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=0)
    for _, parameter in loaded.trained_parameters():
        parameter.mul_(1.1)
    fused.refresh()
    after = played(fused)
    assert not torch.allclose(before[0], after[0], atol=1e-2)
    for one, other in zip(played(plain), after, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=0)
