"""BatchCache: keys and values of running rows; SegmentStore: those of old prefixes."""

import math
import mmap
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class CacheShape:
    """The shape of one token's keys, or values, in a KV cache."""

    layers: int
    heads: int
    head_dim: int
    dtype: torch.dtype


class BatchCache:
    """Keys and values of the running batch, one row per response.

    Running rows are numbered 0 to n-1, so that a decoding step reads a slice. One
    tensor holds all layers: (layers, 2, rows, heads, columns, head_dim). If memory
    cannot hold all rows with all columns, it is rearranged on demand: few long rows or
    many short ones.

    Args:
        shape: Shape of the model's keys and values.
        rows: Most responses that run at once, if they are short.
        columns: Most tokens of one response.
        device: The cache's device.
        tokens: Most tokens of all rows together, at least ``columns``.

    Attributes:
        most_rows: The argument ``rows``.
        rows: Number of rows that fit now.
        columns: Most tokens of each row now.
    """

    def __init__(
        self,
        shape: CacheShape,
        rows: int,
        columns: int,
        device: torch.device,
        tokens: int,
    ) -> None:
        self.most_rows, self._most_columns = rows, columns
        self._heads, self._head_dim = shape.heads, shape.head_dim
        self._tokens = min(tokens, rows * columns)
        size = (shape.layers, 2 * self._tokens * shape.heads * shape.head_dim)
        if device.type == "cpu":  # Linux allocates pages only when they are written
            blank = mmap.mmap(-1, math.prod(size) * shape.dtype.itemsize)
            self._memory = torch.frombuffer(blank, dtype=shape.dtype).view(size)
        else:
            self._memory = torch.zeros(size, dtype=shape.dtype, device=device)
        self._lay_out(self._width(1))

    def fitting(self, columns: int) -> int:
        """Return how many rows fit if one needs so many columns."""
        return min(self.most_rows, self._tokens // self._width(columns))

    def make_room(self, rows: int, columns: int, *, held: tuple[int, int]) -> None:
        """Rearrange the memory, if needed, for rows of up to so many columns.

        Args:
            rows: Number of rows, at most the result of :meth:`fitting`.
            columns: Columns of the longest row.
            held: Number of rows in use, and columns of the longest; they are kept.
        """
        if rows <= self.rows and columns <= self.columns:
            return
        count, used = held
        before = self._data
        self._lay_out(self._width(columns))
        for old, new in zip(before, self._data, strict=True):  # they share memory
            new[:, :count, :, :used] = old[:, :count, :, :used].clone()

    def _width(self, columns: int) -> int:
        """Return the columns of a layout: halved while more rows are useful."""
        width = self._most_columns
        while width // 2 >= columns and self._tokens // width < self.most_rows:
            width //= 2
        return width

    def _lay_out(self, columns: int) -> None:
        self.columns = columns
        self.rows = min(self.most_rows, self._tokens // columns)
        size = (2, self.rows, self._heads, columns, self._head_dim)
        self._data: Tensor = self._memory[:, : math.prod(size)].unflatten(1, size)

    def targets(self, rows: Tensor, positions: Tensor) -> Tensor:
        """Return the positions for :meth:`write` of rows' new columns."""
        device = positions.device
        kind = torch.arange(2, device=device)[:, None] * self.rows * self._heads
        head = (kind + torch.arange(self._heads, device=device)).flatten()
        start = (rows[:, None] * self._heads + head) * self.columns
        return start + positions[:, None]

    def write(self, layer: int, targets: Tensor, new: Tensor) -> None:
        """Write keys and values, (tokens, 2 * heads, head_dim), into a layer."""
        flat = self._data[layer].view(-1, self._head_dim)
        flat.index_copy_(0, targets.flatten(), new.reshape(-1, self._head_dim))

    def read(self, layer: int, rows: slice, width: int) -> tuple[Tensor, Tensor]:
        """Return a view of the first columns' keys and values in a layer."""
        keys, values = self._data[layer]
        return keys[rows, :, :width], values[rows, :, :width]

    def copy(self, source: int, target: int, columns: slice) -> None:
        """Copy columns of one row to another."""
        self._data[:, :, target, :, columns] = self._data[:, :, source, :, columns]

    def take(self, row: int, columns: slice) -> Tensor:
        """Return a copy of a row's columns: (layers, 2, heads, columns, head_dim)."""
        return self._data[:, :, row, :, columns].clone()

    def put(self, row: int, segment: Tensor, columns: slice) -> None:
        """Write the start of a segment from :meth:`take` into a row's columns."""
        width = columns.stop - columns.start
        self._data[:, :, row, :, columns] = segment[:, :, :, :width]


class SegmentStore:
    """A least-recently-used store of keys and values by name, with a memory budget."""

    def __init__(self, tokens: int) -> None:
        self._budget = tokens
        self._held = 0
        self._entries = OrderedDict[Hashable, tuple[Sequence[int], Tensor]]()

    def put(self, name: Hashable, ids: Sequence[int], segment: Tensor) -> None:
        """Store ``segment``, the keys and values of ``ids``, replacing the old one.

        A segment larger than the budget is not stored, and removes no other.
        """
        self._drop(name)
        if len(ids) > self._budget:
            return
        self._entries[name] = (ids, segment)
        self._held += len(ids)
        while self._held > self._budget:
            self._drop(next(iter(self._entries)))

    def match(self, name: Hashable, ids: Sequence[int]) -> tuple[int, Tensor | None]:
        """Return how many of the first ``ids`` are stored, and the segment."""
        found = self._entries.get(name)
        if found is None:
            return 0, None
        self._entries.move_to_end(name)
        return common_prefix(found[0], ids), found[1]

    def _drop(self, name: Hashable) -> None:
        ids, _ = self._entries.pop(name, ((), None))
        self._held -= len(ids)

    def clear(self) -> None:
        """Clear the store: the weights have changed."""
        self._entries.clear()
        self._held = 0


def common_prefix(first: Sequence[int], second: Sequence[int]) -> int:
    """Return the number of leading items that two sequences share."""
    limit = min(len(first), len(second))
    if first[:limit] == second[:limit]:
        return limit
    return next(i for i in range(limit) if first[i] != second[i])
