"""Compute attention for tokens of several sequences, packed into one row.

transformers' code runs the model on a single row, so that no padding is computed. A
:class:`Layout` defines the tokens that each token attends to. In decoding, new tokens
attend to the batch's cache. Grouped keys are read in place, while transformers'
``sdpa`` would copy them for every query head. A prefix shared by all rows is read once.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import sdpa_mask

from agentgym.engines.local.decoding.kv_cache import BatchCache

_NAME = "agentgym_packed_sdpa"
_FEW = 8
"""Most new tokens per row in a decoding step: the newest and the guessed tokens."""


class Layout(ABC):
    """Defines which tokens each packed token attends to."""

    @abstractmethod
    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float
    ) -> Tensor:
        """Compute attention in one layer.

        Args:
            layer: Index of the layer.
            query: Queries, (1, heads, tokens, head_dim).
            key: Keys, (1, key heads, tokens, head_dim); heads is a multiple of key
                heads.
            value: Values, shaped like ``key``.
            scale: Factor of the attention scores.

        Returns:
            The attention's output, (1, tokens, heads, head_dim).
        """


def register() -> str:
    """Register AgentGym's attention function in transformers; return its name.

    Also disable cuDNN's attention in this process. Torch prefers it on some GPUs, but
    it takes half a second for each new shape, and our shapes rarely repeat. See
    https://github.com/modelscope/FunASR/issues/3704.
    """
    torch.backends.cuda.enable_cudnn_sdp(False)
    AttentionInterface.register(_NAME, _attend)
    AttentionMaskInterface.register(_NAME, sdpa_mask)
    return _NAME


def _attend(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    *,
    scaling: float | None = None,
    layout: Layout | None = None,
    **rest: Any,
) -> tuple[Tensor, None]:
    """Compute attention with a layout; without one, call transformers' ``sdpa``."""
    if layout is None:
        return sdpa_attention_forward(
            module, query, key, value, attention_mask, scaling=scaling, **rest
        )
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    layer: Any = module.layer_idx
    return layout.attend(layer, query, key, value, scale), None


class Kept(Layout):
    """Causal attention of one sequence; stores the keys and values.

    Attributes:
        pairs: For each layer index, its keys and values, (1, key heads, tokens,
            head_dim). Those of the first pass are kept if the layer is computed again.
    """

    def __init__(self) -> None:
        self.pairs: dict[int, tuple[Tensor, Tensor]] = {}

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float
    ) -> Tensor:
        """Store the layer's keys and values, and compute causal attention."""
        self.pairs.setdefault(layer, (key, value))
        return functional.scaled_dot_product_attention(
            query,
            key,
            value,
            is_causal=True,
            scale=scale,
            enable_gqa=query.shape[1] != key.shape[1],
        ).transpose(1, 2)


def attend_masked(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, scale: float
) -> Tensor:
    """Compute attention with grouped keys and an additive mask.

    The result has the shape of ``query``. On a GPU the keys are repeated for each query
    head, since the only kernel for both grouped keys and a mask would keep all scores
    in memory.
    """
    groups = query.shape[1] // key.shape[1]
    if groups > 1 and query.device.type == "cuda":
        key = key.repeat_interleave(groups, 1)
        value = value.repeat_interleave(groups, 1)
    return functional.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=mask,
        scale=scale,
        enable_gqa=query.shape[1] != key.shape[1],
    )


@dataclass(frozen=True)
class PackedRows(Layout):
    """New tokens of several rows of a batch, packed row after row.

    Attributes:
        cache: The batch's cache; keys and values of the new tokens are written to it.
        first: Index of the first row.
        ids: Token ids, (tokens,).
        rows: The row of each token, counted from ``first``, (tokens,).
        places: Index of each token among its row's new tokens, (tokens,).
        positions: Column of each token in the cache, (tokens,).
        targets: Flat indices into a layer of the cache, to write keys and values.
        mask: Additive attention mask, (rows, 1, new tokens per row, columns to read).
        shared_prefix: Number of leading columns that are the same in every row.
    """

    cache: BatchCache
    first: int
    ids: Tensor
    rows: Tensor
    places: Tensor
    positions: Tensor
    targets: Tensor
    mask: Tensor
    shared_prefix: int = 0

    def attend(
        self, layer: int, query: Tensor, key: Tensor, value: Tensor, scale: float
    ) -> Tensor:
        """Write keys and values to the cache; attend to each row's earlier tokens."""
        new = torch.cat((key, value), 1)[0].transpose(0, 1)
        self.cache.write(layer, self.targets, new)
        return self.read(layer, query[0].transpose(0, 1), scale)[None]

    def read(self, layer: int, query: Tensor, scale: float = 1.0) -> Tensor:
        """Compute attention to the cache's keys and values in one layer.

        Queries and result have the shape (tokens, heads, head_dim).
        """
        count, _, time, width = self.mask.shape
        rows = slice(self.first, self.first + count)
        keys, values = self.cache.read(layer, rows, width)
        spread = query.new_zeros(count, time, *query.shape[1:])
        spread[self.rows, self.places] = query
        spread = spread.transpose(1, 2)
        if time <= _FEW:
            attended = _few(spread * scale, keys, values, self.mask, self.shared_prefix)
        else:
            attended = attend_masked(spread, keys, values, self.mask, scale)
            attended = attended.transpose(1, 2)
        return attended[self.rows, self.places]

    def ending(self, at: Tensor) -> "PackedRows":
        """Return a layout for :meth:`read` with only the last token of each row."""
        rows, places = self.rows[at], self.places[at]
        mask = self.mask[rows, :, places][:, :, None]
        return replace(self, rows=rows, places=torch.zeros_like(rows), mask=mask)


def _few(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, shared: int
) -> Tensor:
    """Compute attention for rows with only a few queries each.

    The query heads with the same keys count as further queries of one head.
    """
    batch, heads, time, width = query.shape
    groups = key.shape[1]
    rows = query.reshape(batch, groups, -1, width)
    mask = mask.repeat(1, 1, heads // groups, 1)
    if shared:
        output = _sharing(rows, key, value, mask, shared)
    else:
        output = attend_masked(rows, key, value, mask, 1.0)
    return output.reshape(batch, heads, time, width).transpose(1, 2)


def _sharing(
    rows: Tensor, key: Tensor, value: Tensor, mask: Tensor, shared: int
) -> Tensor:
    """Compute attention; read the first ``shared`` columns, equal in all rows, once.

    The result has the shape of ``rows``, (rows, key heads, queries, head_dim).
    """
    batch, groups, _, width = rows.shape
    scores = rows @ key[:, :, shared:].transpose(-1, -2)
    scores += mask[..., shared:]
    together = rows.transpose(0, 1).reshape(groups, -1, width)
    first = together @ key[0, :, :shared].transpose(-1, -2)
    first = first.view(groups, batch, -1, shared).transpose(0, 1)
    weights = torch.softmax(torch.cat((first, scores), -1), -1)
    first = weights[..., :shared].transpose(0, 1).reshape(groups, -1, shared)
    together = first @ value[0, :, :shared]
    output = weights[..., shared:] @ value[:, :, shared:]
    return output + together.view(groups, batch, -1, width).transpose(0, 1)
