"""Recorded decoding steps answer as plain ones do, whatever is filled up.

There is no CUDA here. What takes its place records as little as a CUDA graph does: the
operations and the tensors they read, so that whatever a step took from values while it
was recorded would be wrong in the next one.
"""

import logging
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._python_dispatch import TorchDispatchMode

from agentgym.engines.local.decoding.forward import BatchForward
from agentgym.engines.local.decoding.graphs import GraphedSteps, Step, StepShape
from agentgym.engines.local.loading import LoadedModel, load_model

WAITS = {"aten::_local_scalar_dense", "aten::nonzero", "aten::equal"}


class NoWaiting(TorchDispatchMode):
    """Refuses what reads values of tensors, which a GPU would be waited for."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        assert func._schema.name not in WAITS, func._schema.name
        return func(*args, **(kwargs or {}))


class Traced:
    """Operations as they were called once, of the tensors that they were called on."""

    def __init__(
        self, step: Step, shape: StepShape, ids: Tensor, starts: Tensor
    ) -> None:
        with NoWaiting():
            step(shape, ids, starts)

        def run(ids: Tensor, starts: Tensor) -> Tensor:
            return step(shape, ids, starts)

        self._shapes = ids.shape, starts.shape
        self._run = make_fx(run)(ids, starts)

    def __call__(self, ids: Tensor, starts: Tensor) -> Tensor:
        assert (ids.shape, starts.shape) == self._shapes
        logits: Tensor = self._run(ids, starts)
        return logits


@pytest.fixture(params=[0, 4], ids=["weights", "adapter"])
def loaded(request: pytest.FixtureRequest, model_folder: Path) -> LoadedModel:
    return load_model(str(model_folder), device="cpu", rank=request.param, seed=0)


def plain_and_graphed(
    loaded: LoadedModel, record: Callable[..., Traced] = Traced
) -> tuple[BatchForward, BatchForward]:
    plain, graphed = BatchForward(loaded, 8), BatchForward(loaded, 8)
    for forward in (plain, graphed):
        forward._fused = None  # a model so small is fused, which no GPU does
        forward._workers = 1
    graphed.graphs = GraphedSteps(graphed.step, loaded.device, record)
    return plain, graphed


def test_recorded_steps_give_the_plain_steps_logits(loaded: LoadedModel) -> None:
    plain, graphed = plain_and_graphed(loaded)
    generator = torch.Generator().manual_seed(0)

    def tokens(count: int) -> list[int]:
        return torch.randint(5, 250, (count,), generator=generator).tolist()

    head = tokens(20)
    prompts = [[*head, *tokens(n)] for n in (3, 40, 1, 17, 90)]
    for forward in (plain, graphed):
        forward.predict(prompts, [0] * 5, only_last=True)
    lengths = list(map(len, prompts))
    used = 0
    for step in range(48):
        count = 5 if step < 32 else 3
        if step == 24:  # an update: what was recorded reads the new weights
            for _, parameter in loaded.trained_parameters():
                parameter.data.add_(torch.randn_like(parameter), alpha=0.05)
            for forward in (plain, graphed):
                forward.refresh()
        news = [1 + (row + step) % 3 if step % 2 else 1 for row in range(count)]
        ids, shared = [tokens(new) for new in news], 20 * (step // 2 % 2)
        found = [
            forward.predict(ids, lengths[:count], shared_prefix=shared)
            for forward in (plain, graphed)
        ]
        assert found[0].shape == found[1].shape
        torch.testing.assert_close(found[1], found[0], atol=1e-4, rtol=0)
        assert graphed.graphs is not None
        used = len(graphed.graphs._recorded)
        for row, new in enumerate(news):
            lengths[row] += new
    assert used > 4


def test_rows_that_are_nearly_full_are_decoded_plainly(loaded: LoadedModel) -> None:
    plain, graphed = plain_and_graphed(loaded)
    last = graphed.cache.columns - 2
    prompt = [5 + i % 200 for i in range(last)]
    for forward in (plain, graphed):
        forward.predict([prompt], [0], only_last=True)
    for _ in range(6):
        found = [f.predict([[7, 8]], [last]) for f in (plain, graphed)]
        torch.testing.assert_close(found[1], found[0], atol=1e-4, rtol=0)
        three = [f.predict([[7]], [last + 1]) for f in (plain, graphed)]
        torch.testing.assert_close(three[1], three[0], atol=1e-4, rtol=0)


class Broken(Traced):
    def __init__(self, *_: object) -> None:
        raise RuntimeError("operation not permitted when stream is capturing")


class Wrong(Traced):
    def __call__(self, ids: Tensor, starts: Tensor) -> Tensor:
        return super().__call__(ids + 1, starts)


@pytest.mark.parametrize(
    ("record", "why"), [(Broken, "not permitted"), (Wrong, "% off")]
)
def test_what_cannot_be_recorded_right_is_not_used(
    loaded: LoadedModel,
    record: Callable[..., Traced],
    why: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    plain, graphed = plain_and_graphed(loaded, record)
    with caplog.at_level(logging.WARNING):
        for length in range(8):
            found = [f.predict([[5 + length]], [length]) for f in (plain, graphed)]
            torch.testing.assert_close(found[1], found[0], atol=1e-4, rtol=0)
    assert [why in message for message in caplog.messages] == [True]
    assert "goes on without CUDA graphs" in caplog.text
