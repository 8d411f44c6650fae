"""Store keys and values: BatchCache for running rows, SegmentStore for old prefixes."""

import math
import mmap
from collections import OrderedDict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from agentgym.engines.tokens.rendering import common_prefix


@dataclass(frozen=True)
class CacheShape:
    """The shape of one token's keys in a KV cache. Values have the same shape."""

    layers: int
    heads: int
    head_dim: int
    dtype: torch.dtype


class BatchCache:
    """Keys and values of the running batch, one row per response.

    Running rows have the indices 0 to n-1, so that a decoding step reads a slice. A
    column holds one token. One tensor holds all layers: (layers, 2, rows, heads,
    columns, head_dim). If the memory is too small for all rows at full length, it is
    divided into few long rows or many short rows, as the running requests need.

    Args:
        shape: Shape of the model's keys and values.
        rows: Most responses that run at once, if they are short.
        columns: Most tokens of a row: prompt and response.
        device: The cache's device.
        tokens: Most tokens of all rows together, at least ``columns``.

    Attributes:
        most_rows: Most responses that run at once.
        rows: Number of rows into which the memory is divided now.
        columns: Number of columns of each of these rows.
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
        """Return how many rows fit if the longest row needs ``columns`` columns."""
        return min(self.most_rows, self._tokens // self._width(columns))

    def make_room(self, rows: int, columns: int, *, held: tuple[int, int]) -> None:
        """Make sure that there are this many rows with this many columns each."""
        if rows <= self.rows and columns <= self.columns:
            return
        count, used = held
        before = self._data
        self._lay_out(self._width(columns))
        for old, new in zip(before, self._data, strict=True):  # they share memory
            new[:, :count, :, :used] = old[:, :count, :, :used].clone()

    def _width(self, columns: int) -> int:
        """Return the number of columns to give each row, at least ``columns``.

        It is as small as needed for ``most_rows`` rows to fit: the largest number of
        columns is halved until they fit, but not below ``columns``.
        """
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
        """Return the indices with which :meth:`write` stores tokens.

        ``rows`` and ``positions`` have the row and the column of each token. The result
        has flat indices into a layer, (tokens, 2 * heads): for each token, those of its
        keys (one per head), then those of its values.
        """
        device = positions.device
        kind = torch.arange(2, device=device)[:, None] * self.rows * self._heads
        head = (kind + torch.arange(self._heads, device=device)).flatten()
        start = (rows[:, None] * self._heads + head) * self.columns
        return start + positions[:, None]

    def write(self, layer: int, targets: Tensor, new: Tensor) -> None:
        """Write keys and values of tokens into a layer.

        ``new`` has for each token its keys, then its values, (tokens, 2 * heads,
        head_dim). ``targets`` is the result of :meth:`targets`.
        """
        flat = self._data[layer].view(-1, self._head_dim)
        flat.index_copy_(0, targets.flatten(), new.reshape(-1, self._head_dim))

    def read(self, layer: int, rows: slice, width: int) -> tuple[Tensor, Tensor]:
        """Return a layer's keys and values in the first ``width`` columns, as views."""
        keys, values = self._data[layer]
        return keys[rows, :, :width], values[rows, :, :width]

    def copy(self, source: int, target: int, columns: slice) -> None:
        """Copy columns of the row ``source`` to the row ``target``."""
        self._data[:, :, target, :, columns] = self._data[:, :, source, :, columns]

    def take(self, row: int, columns: slice) -> Tensor:
        """Return a copy of a row's columns: (layers, 2, heads, columns, head_dim)."""
        return self._data[:, :, row, :, columns].clone()

    def put(self, row: int, segment: Tensor, columns: slice) -> None:
        """Write the start of ``segment`` (from :meth:`take`) to a row's columns."""
        width = columns.stop - columns.start
        self._data[:, :, row, :, columns] = segment[:, :, :, :width]


class BoundedStore[K: Hashable, V]:
    """A store of values by key; when full, it drops the least recently used values."""

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._held = 0
        self._entries = OrderedDict[K, tuple[V, int]]()

    def keep(self, key: K, value: V, size: int) -> None:
        """Store a value, and drop the key's old value."""
        self._drop(key)
        if size > self._budget:
            return
        self._entries[key] = (value, size)
        self._held += size
        while self._held > self._budget:
            self._drop(next(iter(self._entries)))

    def get(self, key: K) -> V | None:
        """Return a key's value; None if it is not stored."""
        if key not in self._entries:
            return None
        self._entries.move_to_end(key)
        return self._entries[key][0]

    def clear(self) -> None:
        """Remove all values, e.g. before the weights change."""
        self._entries.clear()
        self._held = 0

    def _drop(self, key: K) -> None:
        _, size = self._entries.pop(key, (None, 0))
        self._held -= size


class SegmentStore(BoundedStore[Hashable, tuple[Sequence[int], Tensor]]):
    """A store of segments by name. A segment is the KV cache of consecutive tokens."""

    def put(self, name: Hashable, ids: Sequence[int], segment: Tensor) -> None:
        """Store the keys and values (``segment``) of tokens under a name."""
        self.keep(name, (ids, segment), len(ids))

    def match(self, name: Hashable, ids: Sequence[int]) -> tuple[int, Tensor | None]:
        """Return how many first tokens a segment shares with ``ids``, and the segment.

        Without a segment under this name, the result is 0 and None.
        """
        found = self.get(name)
        if found is None:
            return 0, None
        return common_prefix(found[0], ids), found[1]
