"""The fused forward pass gives the model's own logits."""

import threading
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
import torch

from agentgym.engines.local.decoding import forward as forward_module
from agentgym.engines.local.decoding.forward import BatchForward
from agentgym.engines.local.loading import load_model
from agentgym.engines.local.model import LoadedModel


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
        forward.predict(
            [[*head, *tokens(n)] for n in (3, 40, 1, 17)], [0] * 4, only_last=True
        ),
        forward.predict([tokens(5), tokens(2)], [60, 21], first=1, only_last=True),
    ]
    lengths = [23, 65, 23, 37]
    for shared, counts in product((20, 0, 20), ((1, 1, 1, 1), (1, 4, 2, 9))):
        ids = [tokens(count) for count in counts]
        found.append(forward.predict(ids, lengths, shared_prefix=shared))
        assert len(found[-1]) == sum(counts)
        lengths = [
            length + count for length, count in zip(lengths, counts, strict=True)
        ]
    return found


@torch.no_grad()
def test_fused_weights_give_the_same_logits_also_after_an_update(
    loaded: LoadedModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(forward_module, "fuse", lambda _: None)
        plain = BatchForward(loaded, 8)
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


def long_played(forward: BatchForward) -> list[torch.Tensor]:
    """Prefill and decode so many tokens that they are computed in parts."""
    generator = torch.Generator().manual_seed(0)

    def tokens(count: int) -> list[int]:
        return torch.randint(5, 250, (count,), generator=generator).tolist()

    head = tokens(20)
    sizes = (3, 40, 1, 17, 60, 90)
    found = [
        forward.predict([[*head, *tokens(n)] for n in sizes], [0] * 6, only_last=True)
    ]
    lengths = [20 + n for n in sizes]
    for shared, counts in product((20, 0), ((8,) * 6, (64, 1, 1, 1, 1, 1))):
        ids = [tokens(count) for count in counts]
        found.append(forward.predict(ids, lengths, shared_prefix=shared))
        assert len(found[-1]) == sum(counts)
    return found


def forward_threads() -> set[int]:
    return {
        thread.native_id or 0
        for thread in threading.enumerate()
        if thread.name.startswith("agentgym-forward")
    }


@torch.no_grad()
@pytest.mark.parametrize("workers", [2, 3, 8])
def test_rows_computed_in_parts_give_the_same_logits(
    loaded: LoadedModel, workers: int
) -> None:
    whole = BatchForward(loaded, 8)
    parts = BatchForward(replace(loaded, cores=workers), 8)
    before = forward_threads()
    expected = long_played(whole)
    assert forward_threads() == before
    for one, other in zip(expected, long_played(parts), strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=0)
    assert forward_threads() > before


@torch.no_grad()
def test_a_part_that_fails_leaves_the_next_pass_alone(loaded: LoadedModel) -> None:
    forward = BatchForward(replace(loaded, cores=2), 8)
    expected = long_played(forward)
    for wrong in (0, 7):
        ids = [[5] * 16 for _ in range(8)]
        ids[wrong][3] = loaded.vocabulary + 1
        with pytest.raises(IndexError):
            forward.predict(ids, [60] * 8)
    for one, other in zip(expected, long_played(forward), strict=True):
        torch.testing.assert_close(one, other, atol=0, rtol=0)
