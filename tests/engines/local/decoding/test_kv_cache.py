"""A batch's memory holds few long rows or many short ones, and answers are the same."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from agentgym.core.policy import ChatRequest
from agentgym.engines.local import loading
from agentgym.engines.local.decoding import forward as forward_module
from agentgym.engines.local.decoding.batch import BatchDecoder
from agentgym.engines.local.decoding.decoder import DecodingJob, Generation
from agentgym.engines.local.decoding.forward import BatchForward
from agentgym.engines.local.decoding.kv_cache import (
    BatchCache,
    CacheShape,
    SegmentStore,
)
from agentgym.engines.local.loading import load_model
from agentgym.engines.local.model import LoadedModel
from agentgym.engines.local.policy import LocalPolicy
from agentgym.errors import ContextLengthError, ModelError

SHAPE = CacheShape(layers=2, heads=3, head_dim=4, dtype=torch.float32)
CPU = torch.device("cpu")


@pytest.fixture
def loaded(model_folder: Path) -> LoadedModel:
    return load_model(str(model_folder), device="cpu", rank=0, seed=0)


def answers(
    loaded: LoadedModel, prompts: list[list[int]], *, fused: bool
) -> tuple[list[Generation], int]:
    """Answer prompts with two tokens more than they have; return the most at once."""
    with pytest.MonkeyPatch.context() as patch:
        if not fused:
            patch.setattr(forward_module, "fuse", lambda _: None)
        forward = BatchForward(replace(loaded, stop_ids=frozenset()), 32)
    widest = 0
    predict = forward.predict

    def counted(ids: Sequence[Sequence[int]], *args: Any, **rest: Any) -> torch.Tensor:
        nonlocal widest
        widest = max(widest, len(ids))
        return predict(ids, *args, **rest)

    forward.predict = counted  # type: ignore[method-assign]
    decoder = BatchDecoder(forward)
    futures: list[Future[Generation]] = []
    for seed, prompt in enumerate(prompts):
        job = DecodingJob(prompt, 6, f"s{seed}", 1.0, len(prompt) + 2, seed)
        decoder.submit(job)
        futures.append(job.future)
    found = [future.result(timeout=60) for future in futures]
    decoder.close()
    return found, widest


@pytest.mark.slow
@pytest.mark.parametrize("fused", [True, False])
def test_rows_share_memory_by_what_they_need(loaded: LoadedModel, fused: bool) -> None:
    generator = torch.Generator().manual_seed(0)
    head = torch.randint(5, 250, (6,), generator=generator).tolist()
    sizes = [*range(4, 16), 120, 9, 240, 8, 11, 30, *range(4, 20), 200]
    prompts = [
        [*head, *torch.randint(5, 250, (n,), generator=generator).tolist()]
        for n in sizes
    ]
    roomy, _ = answers(loaded, prompts, fused=fused)
    scarce, widest = answers(replace(loaded, cache_tokens=520), prompts, fused=fused)

    assert widest >= 6  # a row of the whole context leaves room for no other
    for one, other in zip(roomy, scarce, strict=True):
        assert one.ids == other.ids
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)


def test_what_rows_hold_survives_a_new_layout() -> None:
    cache = BatchCache(SHAPE, 16, 256, CPU, tokens=512)
    assert (cache.rows, cache.columns) == (16, 32)
    pieces = [torch.randn(cache.take(0, slice(0, n)).shape) for n in (5, 30)]
    for row, piece in enumerate(pieces):
        cache.put(row, piece, slice(0, piece.shape[3]))

    for rows, columns, layout in (
        (4, 100, (4, 128)),
        (2, 129, (2, 256)),
        (9, 31, (16, 32)),
    ):
        assert cache.fitting(columns) == layout[0]
        cache.make_room(rows, columns, held=(2, 30))
        assert (cache.rows, cache.columns) == layout
        for row, piece in enumerate(pieces):
            assert torch.equal(cache.take(row, slice(0, piece.shape[3])), piece)


def test_a_segment_beyond_the_budget_drops_no_other() -> None:
    store = SegmentStore(10)
    store.put("short", [1, 2, 3], torch.zeros(3))
    store.put("long", [0] * 11, torch.zeros(11))

    assert store.match("short", [1, 2])[0] == 2
    assert store.match("long", [0]) == (0, None)


def test_idle_sessions_are_kept_as_memory_permits(loaded: LoadedModel) -> None:
    small = replace(loaded, cache_tokens=600, stop_ids=frozenset())
    decoder = BatchDecoder(BatchForward(small, 2))
    for session in range(8):
        job = DecodingJob(list(range(5, 105)), 0, f"s{session}", 1.0, 2, 0)
        decoder.submit(job)
        job.future.result(timeout=60)
    decoder.close()

    kept = [
        name for name in range(8) if decoder._parked.match((-1, f"s{name}", 0), [5])[0]
    ]
    assert kept == [6, 7]


def test_the_context_is_what_memory_can_hold(
    model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "_LEAST_TOKENS", 64)
    monkeypatch.setattr(loading, "CACHE_BYTES", 100 * 256)
    policy = LocalPolicy.load(model_folder, gpu="none")
    request = ChatRequest(messages=[{"role": "user", "content": "d " * 200}])
    with pytest.raises(ContextLengthError, match="holds 100,"):
        asyncio.run(policy.chat(request))
    policy.close()


def test_a_model_that_leaves_no_memory_for_a_response_is_refused(
    model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "CACHE_BYTES", 100 * 256)
    with pytest.raises(ModelError, match="hold only 100 tokens"):
        load_model(str(model_folder), device="cpu", rank=0, seed=0)
