"""Decoding steps of few shapes, each recorded once and then launched as a whole.

A decoding step of a model of 28 layers is above a thousand kernels, and starting them
one by one takes longer than a small batch computes. A CUDA graph
(https://pytorch.org/blog/accelerating-pytorch-with-cuda-graphs/) starts them all at
once, for tensors of one shape at one place: so rows, tokens and columns are filled up
to powers of two, and what was filled up is left out of the answer.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from agentgym.security.redaction import get_logger

logger = get_logger(__name__)

_LEAST_WIDTH = 128
_TRIES = 3
"""Steps of a shape before it is recorded: that costs as much as some steps."""
_MOST_GRAPHS = 64
_FAR = 0.02
"""Of the largest logit: two ways to compute bfloat16 are less apart."""


class StepShape(NamedTuple):
    """What a recorded step is made for.

    Attributes:
        rows: Of the batch, filled up.
        time: New tokens of each, filled up.
        width: Columns that the attention sees.
        shared: How many first columns are the same in every row.
        layout: Rows and columns of the cache.
    """

    rows: int
    time: int
    width: int
    shared: int
    layout: tuple[int, int]


type Step = Callable[[StepShape, Tensor, Tensor], Tensor]
"""Of a shape, ids (rows, time) and columns held (rows,): logits of all tokens."""


class Recorded(Protocol):
    """A step that was recorded; called with tensors of its shape."""

    def __call__(self, ids: Tensor, starts: Tensor) -> Tensor:
        """Return the logits of all tokens."""


class CudaGraph:
    """A step as a CUDA graph.

    Args:
        step: What it records.
        shape: For which shape.
        ids: Of the first time, (rows, time).
        starts: Likewise, (rows,).
    """

    _pool: Any = None

    def __init__(
        self, step: Step, shape: StepShape, ids: Tensor, starts: Tensor
    ) -> None:
        if CudaGraph._pool is None:
            CudaGraph._pool = torch.cuda.graph_pool_handle()
        self._ids, self._starts = ids.clone(), starts.clone()
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(
            self._graph, pool=CudaGraph._pool, capture_error_mode="thread_local"
        ):
            self._logits = step(shape, self._ids, self._starts)

    def __call__(self, ids: Tensor, starts: Tensor) -> Tensor:
        """Launch it; what it returns holds until the next launch of any."""
        self._ids.copy_(ids)
        self._starts.copy_(starts)
        self._graph.replay()
        return self._logits


class GraphedSteps:
    """Decoding steps that are recorded where they come again.

    A shape's first recording is compared with the plain step. If it differs, or cannot
    be made, none is used from then on, and the log says why.

    Args:
        step: One step, with nothing in it that waits for the device.
        device: Where it computes.
        record: What records a step.
    """

    def __init__(
        self,
        step: Step,
        device: torch.device,
        record: Callable[[Step, StepShape, Tensor, Tensor], Recorded] = CudaGraph,
    ) -> None:
        self._step, self._device, self._record = step, device, record
        self._recorded: dict[StepShape, Recorded] = {}
        self._seen = Counter[StepShape]()
        self._is_off = False

    def forget(self) -> None:
        """Drop what was recorded: tensors that it reads have been replaced."""
        self._recorded.clear()

    @torch.inference_mode()
    def predict(
        self,
        ids: Sequence[Sequence[int]],
        starts: Sequence[int],
        *,
        shared: int,
        layout: tuple[int, int],
    ) -> Tensor | None:
        """Return the logits of new tokens, row after row; None to do it plainly.

        Args:
            ids: New tokens of each row from the first on.
            starts: How many tokens each row holds already.
            shared: How many first tokens are the same in every row.
            layout: Rows and columns of the cache.
        """
        shape = _shape(ids, starts, shared, layout)
        if self._is_off or shape is None:
            return None
        self._seen[shape] += 1
        if shape not in self._recorded and (
            self._seen[shape] <= _TRIES or len(self._recorded) >= _MOST_GRAPHS
        ):
            return None
        filled = [[*row, *[0] * (shape.time - len(row))] for row in ids]
        filled += [[0] * shape.time] * (shape.rows - len(ids))
        held = [*starts, *[0] * (shape.rows - len(ids))]
        tokens = torch.tensor(filled, device=self._device)
        columns = torch.tensor(held, device=self._device)
        counted = [
            row * shape.time + place
            for row, new in enumerate(ids)
            for place in range(len(new))
        ]
        at = torch.tensor(counted, device=self._device)
        found = self._recorded.get(shape) or self._try(shape, tokens, columns, at)
        return None if found is None else found(tokens, columns).index_select(0, at)

    def _try(
        self, shape: StepShape, ids: Tensor, starts: Tensor, at: Tensor
    ) -> Recorded | None:
        """Record a step, and keep it if it does what the plain one does."""
        plain = self._step(shape, ids, starts).index_select(0, at)
        try:
            found = self._record(self._step, shape, ids, starts)
            logits = found(ids, starts).index_select(0, at)
        except RuntimeError as error:
            self._give_up(f"{type(error).__name__}: {error}")
            return None
        apart = float((logits - plain).abs().max() / plain.abs().max())
        if not apart <= _FAR:
            self._give_up(f"its logits are {apart:.1%} off")
            return None
        self._recorded[shape] = found
        return found

    def _give_up(self, why: str) -> None:
        """Use none from now on; the plain step writes anew what this one has."""
        self._is_off = True
        self.forget()
        logger.warning("Decoding goes on without CUDA graphs: %.300s", why)


def _shape(
    ids: Sequence[Sequence[int]],
    starts: Sequence[int],
    shared: int,
    layout: tuple[int, int],
) -> StepShape | None:
    """Return the shape that rows are filled up to; None if the cache has no room."""
    cache_rows, columns = layout
    time = _filled(max(map(len, ids)))
    rows = min(cache_rows, _filled(len(ids)))
    reach = max(starts) + time
    if reach > columns:
        return None
    width = min(columns, max(_LEAST_WIDTH, _filled(reach)))
    return StepShape(rows, time, width, shared, layout)


def _filled(count: int) -> int:
    return 1 << (count - 1).bit_length()
