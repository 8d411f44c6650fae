"""Forward passes of the running batch: prefill of new rows, one step of all rows."""

from collections.abc import Sequence

import torch
from torch import Tensor

from agentgym.engines.local.kv_cache import BatchCache
from agentgym.engines.local.llama import FusedLlama, Pass, fuse
from agentgym.engines.local.loading import LoadedModel

_WIDTH_STEP = 16
_FIXED_WIDTH_STEP = 128
_CACHE_BYTES = 4 * 2**30


class BatchForward:
    """Runs the model on rows of a :class:`BatchCache`.

    Args:
        loaded: The model.
        max_rows: Most responses at once; fewer if their cache would not fit 4 GiB.
        fixed: Use few, wide shapes, for which kernels keep rows independent.
        fused: Use fused weights if the model's kind allows it.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        max_rows: int,
        *,
        fixed: bool = False,
        fused: bool = True,
    ) -> None:
        self._loaded = loaded
        self._width_step = _FIXED_WIDTH_STEP if fixed else _WIDTH_STEP
        shape, columns = loaded.cache_shape, loaded.context
        fitting = _CACHE_BYTES // (shape.bytes_per_token * columns)
        self.cache = BatchCache(
            shape, max(1, min(max_rows, fitting)), columns, loaded.device
        )
        self._fused: FusedLlama | None = fuse(loaded) if fused else None

    def refresh(self) -> None:
        """Take over the model's weights, which have changed."""
        if self._fused is not None:
            self._fused.refresh()

    @property
    def rows(self) -> int:
        """Most responses at once."""
        return self.cache.rows

    def prefill(
        self, first: int, ids: Sequence[Sequence[int]], starts: Sequence[int]
    ) -> Tensor:
        """Add tokens to rows from ``first`` on, and predict what follows each.

        Args:
            first: First row.
            ids: New tokens of each row, at least one; their lengths may differ.
            starts: How many tokens each row holds already.

        Returns:
            Logits after each row's last token, (rows, vocabulary).
        """
        time = max(map(len, ids))
        padded = [[*row, *[0] * (time - len(row))] for row in ids]
        last = [len(row) - 1 for row in ids]
        return self._run(first, padded, starts, last)

    def step(
        self, tokens: Sequence[int], lengths: Sequence[int], *, shared_prefix: int = 0
    ) -> Tensor:
        """Add one token to each row and predict the next.

        Args:
            tokens: One per row.
            lengths: How many tokens each row holds already.
            shared_prefix: How many first tokens are the same in every row.

        Returns:
            Logits, (rows, vocabulary).
        """
        ids = [[token] for token in tokens]
        return self._run(0, ids, lengths, [0] * len(ids), shared_prefix)

    @torch.inference_mode()
    def _run(
        self,
        first: int,
        ids: Sequence[Sequence[int]],
        starts: Sequence[int],
        last: Sequence[int],
        shared_prefix: int = 0,
    ) -> Tensor:
        device, columns = self._loaded.device, self.cache.columns
        tokens = torch.tensor(ids, device=device)
        count, time = tokens.shape
        start = torch.tensor(starts, device=device)
        positions = start[:, None] + torch.arange(time, device=device)
        # Padding may point past the end; a row's last column is written before read.
        positions.clamp_(max=columns - 1)
        steps = -(-(max(starts) + time) // self._width_step)
        width = min(columns, steps * self._width_step)
        keys = torch.arange(width, device=device)
        mask = torch.zeros(
            count, 1, time, width, dtype=self._loaded.cache_shape.dtype, device=device
        )
        mask.masked_fill_(keys > positions[:, None, :, None], -torch.inf)
        ends = torch.tensor(last, device=device)
        if self._fused is not None:
            work = Pass(tokens, positions, ends, first, mask, shared_prefix)
            return self._fused.logits(work, self.cache)
        self.cache.open(first, positions, width)
        hidden = self._loaded.hidden(
            tokens, positions, mask, self.cache.layers, shared_prefix=shared_prefix
        )
        row = torch.arange(count, device=device)
        logits: Tensor = self._loaded.head(hidden[row, ends])
        return logits


def rows_are_independent(forward: BatchForward, rows: int) -> bool:
    """Return whether a row's logits are the same bits whatever the other rows hold.

    Decoding with a fixed number of rows is reproducible only if they do not depend on
    the row's place, on its neighbours, or on how many columns the longest one needs.
    That is up to the machine's matrix kernels, so it is tried out: a few responses
    are placed among others of many lengths.
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
        logits = forward.step(order, held)
        for row, which in enumerate(order):
            if row == trial % rows:
                continue
            if not torch.equal(seen.setdefault(which, logits[row]), logits[row]):
                return False
    return True
