"""Forward passes of the running batch: prefill of new rows, and one decoding step."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import chain, pairwise

import numpy as np
import torch
from torch import Tensor

from agentgym.engines.local.attention import PackedRows
from agentgym.engines.local.decoding.kv_cache import BatchCache
from agentgym.engines.local.decoding.llama import fuse
from agentgym.engines.local.model import LoadedModel

_WIDTH_STEP = 16
_FIXED_WIDTH_STEP = 128
_LEAST_TOKENS = 32
"""Least tokens of a part: with fewer, overhead exceeds computing."""


class BatchForward:
    """Runs the model on rows of a :class:`BatchCache`.

    Args:
        loaded: The model.
        rows: Most responses at the same time.
        fixed: Use few, wide shapes, for which kernels keep rows independent: each row
            has room for the whole context, so fewer rows may fit.

    Attributes:
        loaded: The model.
        cache: Cache of the rows.
    """

    def __init__(self, loaded: LoadedModel, rows: int, *, fixed: bool = False) -> None:
        self.loaded = loaded
        self._width_step = _FIXED_WIDTH_STEP if fixed else _WIDTH_STEP
        if fixed:
            rows = min(rows, loaded.cache_tokens // loaded.context)
        self.cache = BatchCache(
            loaded.cache_shape, rows, loaded.context, loaded.device, loaded.cache_tokens
        )
        self._sampled, self._copy = loaded.sampled()
        self._fused = fuse(self._sampled)
        self._workers = 1 if fixed or self._fused is None else loaded.threads[0]
        self._pool = ThreadPoolExecutor(
            max(1, self._workers - 1), "agentgym-forward", torch.set_num_threads, (1,)
        )

    def refresh(self) -> None:
        """Read the model's weights again, which have changed."""
        if self._copy is not None:
            self._copy.refresh()
        if self._fused is not None:
            self._fused.refresh()

    def predict(
        self,
        ids: Sequence[Sequence[int]],
        starts: Sequence[int],
        adapters: Sequence[int] = (),
        *,
        first: int = 0,
        only_last: bool = False,
        shared_prefix: int = 0,
    ) -> Tensor:
        """Add tokens to rows, and predict the next tokens.

        Rows are independent. For a small model, parts of the rows are computed in
        parallel threads, which wait for each other only once; multi-threaded kernels
        would wait in each operation.

        Args:
            ids: New tokens of each row, at least one; their number may differ.
            starts: For each row, the number of tokens that it has already.
            adapters: For each row, the number of its role's own adapter, -1 for none;
                read only if roles have adapters of their own.
            first: Index of the first row.
            only_last: Predict only the token after each row's last one.
            shared_prefix: Number of first tokens that are the same in every row.

        Returns:
            Logits, row after row, (new tokens, vocabulary), or (rows, vocabulary).
        """

        def run(part: slice) -> Tensor:
            begin = first + part.start
            return self._run(ids[part], starts[part], begin, only_last, shared_prefix)

        if self._copy is not None and self.loaded.roles:  # then in one part
            given = adapters or [-1] * len(ids)
            owners = [[own] * len(row) for own, row in zip(given, ids, strict=True)]
            chosen = torch.tensor(list(chain(*owners)), device=self.loaded.device)
            self._copy.choose(chosen)

        mine, *others = _parts(list(map(len, ids)), self._workers)
        if not others:
            return run(mine)
        rest = [self._pool.submit(run, part) for part in others]
        try:
            logits = run(mine)
        finally:
            wait(rest)
        return torch.cat([logits, *(found.result() for found in rest)])

    @torch.inference_mode()
    def _run(
        self,
        ids: Sequence[Sequence[int]],
        starts: Sequence[int],
        first: int,
        only_last: bool,
        shared_prefix: int,
    ) -> Tensor:
        device = self.loaded.device
        counts = list(map(len, ids))
        lengths = torch.tensor(counts, device=device)
        start = torch.tensor(starts, device=device)
        rows = torch.arange(len(ids), device=device).repeat_interleave(lengths)
        ends = lengths.cumsum(0)
        places = torch.arange(len(rows), device=device) - (ends - lengths)[rows]
        reach = max(held + new for held, new in zip(starts, counts, strict=True))
        steps = -(-reach // self._width_step)
        width = min(self.cache.columns, steps * self._width_step)
        positions = start[rows] + places
        work = PackedRows(
            cache=self.cache,
            first=first,
            ids=torch.tensor(list(chain(*ids)), device=device),
            rows=rows,
            places=places,
            positions=positions,
            targets=self.cache.targets(first + rows, positions),
            mask=self._mask(start, max(counts), width),
            shared_prefix=shared_prefix,
        )
        return self._logits(work, ends - 1 if only_last else None)

    def _logits(self, work: PackedRows, last: Tensor | None) -> Tensor:
        if self._fused is not None:
            return self._fused.logits(work, last)
        return self._sampled.logits(work.ids, work.positions, work, last)

    def _mask(self, start: Tensor, time: int, width: int) -> Tensor:
        """Return the columns visible to each new token, (rows, 1, time, width)."""
        new = torch.arange(time, device=start.device)
        keys = torch.arange(width, device=start.device)
        hidden = keys > (start[:, None] + new)[:, None, :, None]
        dtype = self.loaded.cache_shape.dtype
        mask = torch.zeros(hidden.shape, dtype=dtype, device=start.device)
        return mask.masked_fill_(hidden, -torch.inf)


def _parts(tokens: Sequence[int], most: int) -> list[slice]:
    """Split rows into up to ``most`` slices with about equally many tokens."""
    ends = np.cumsum(tokens)
    count = max(1, min(most, int(ends[-1]) // _LEAST_TOKENS))
    cuts = np.searchsorted(ends, ends[-1] * np.arange(1, count) / count) + 1
    bounds = sorted({0, *cuts.tolist(), len(tokens)})
    return [slice(start, end) for start, end in pairwise(bounds)]


def rows_are_independent(forward: BatchForward, rows: int) -> bool:
    """Return whether other rows never change a row's logits, bit for bit.

    They must not depend on the row's index, on its neighbours, or on the number of
    columns of the longest row. That depends on the machine's matrix kernels, so it is
    tried out: a few responses are computed among others of many lengths.
    """
    step, columns = _FIXED_WIDTH_STEP, forward.cache.columns
    generator = torch.Generator().manual_seed(0)
    lengths = [7 + 13 * i % (step // 2) for i in range(rows)]
    pieces = [
        torch.randn(forward.cache.take(0, slice(0, n)).shape, generator=generator)
        for n in lengths
    ]
    seen: dict[int, Tensor] = {}
    for trial, longest in enumerate(range(step // 2, columns, step)):
        order = [(row + 5 * trial) % rows for row in range(rows)]
        held = [lengths[which] for which in order]
        for row, which in enumerate(order):
            forward.cache.put(row, pieces[which], slice(0, held[row]))
        held[trial % rows] = longest - 1
        logits = forward.predict([[token] for token in order], held)
        for row, which in enumerate(order):
            if row == trial % rows:
                continue
            if not torch.equal(seen.setdefault(which, logits[row]), logits[row]):
                return False
    return True
