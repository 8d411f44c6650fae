"""Attention for grouped queries, for a batch whose rows begin alike, and for trees.

transformers' own ``sdpa`` repeats keys and values for every query head as soon as
there is a mask, which costs several times more than the attention itself when a few
tokens per row are decoded on a CPU. Here torch's kernel reads them in place; and where
rows share a prefix, a decoding step reads the prefix's keys and values once, not once
per row. In training, branches of prefix trees attend each to its own ancestors.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

NAME = "agentgym_grouped_sdpa"
FEW_QUERIES = 8
"""As many new tokens a row as a decoding step has at most: one, and those drafted."""


@dataclass(frozen=True)
class TreeLayout:
    """Who attends to whom in trees that are packed into one row.

    Attributes:
        pieces: Lengths of the runs of keys, the head's included, in order.
        queries: Lengths of the branches, in order.
        seen: Of each branch, the pieces that it attends to; its own come last.
    """

    pieces: Sequence[int]
    queries: Sequence[int]
    seen: Sequence[Sequence[int]]


def register() -> str:
    """Make the attention known to transformers; return its name there."""
    AttentionInterface.register(NAME, grouped_sdpa)
    AttentionMaskInterface.register(NAME, sdpa_mask)
    return NAME


def grouped_sdpa(
    module: nn.Module,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attention_mask: Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    shared_prefix: int = 0,
    layout: TreeLayout | None = None,
    **kwargs: Any,
) -> tuple[Tensor, None]:
    """Attend, as transformers calls it.

    Args:
        module: The layer; unused.
        query: (batch, heads, time, head_dim).
        key: (batch, key heads, keys, head_dim); heads is a multiple of key heads.
        value: Shaped like ``key``.
        attention_mask: Additive or boolean; None is causal.
        dropout: Of attention weights.
        scaling: Of scores; None is one over the root of head_dim.
        shared_prefix: How many first keys are the same in every row, and seen by all.
        layout: Of the trees that the one row holds; the mask is then not looked at.
        **kwargs: What other implementations need.

    Returns:
        (batch, time, heads, head_dim), and no weights.
    """
    if layout is not None:
        return tree_attention(query, key, value, layout, scaling), None
    few = query.shape[2] == 1 or shared_prefix > 0
    if few and attention_mask is not None:
        scale = query.shape[-1] ** -0.5 if scaling is None else scaling
        attended = decode_attention(
            query * scale, key, value, attention_mask, shared_prefix
        )
        return attended, None
    output = functional.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=attention_mask,
        dropout_p=dropout,
        is_causal=attention_mask is None and query.shape[2] > 1,
        scale=scaling,
        enable_gqa=query.shape[1] != key.shape[1],
    )
    return output.transpose(1, 2).contiguous(), None


def decode_attention(
    query: Tensor, key: Tensor, value: Tensor, mask: Tensor, shared: int
) -> Tensor:
    """Attend with few queries per row and head.

    Args:
        query: Scaled, (batch, heads, time, head_dim).
        key: (batch, key heads, keys, head_dim).
        value: Shaped like ``key``.
        mask: Additive, (batch, 1, time, keys).
        shared: How many first keys are the same in every row, and seen by all.

    Returns:
        (batch, time, heads, head_dim).
    """
    batch, heads, time, width = query.shape
    groups = key.shape[1]
    rows = query.reshape(batch, groups, -1, width)
    scores = rows @ key[:, :, shared:].transpose(-1, -2)
    scores.unflatten(2, (-1, time)).add_(mask[:, :, None, :, shared:])
    if shared:
        together = rows.transpose(0, 1).reshape(groups, -1, width)
        first = together @ key[0, :, :shared].transpose(-1, -2)
        first = first.view(groups, batch, -1, shared).transpose(0, 1)
        scores = torch.cat((first, scores), -1)
    weights = torch.softmax(scores, -1)
    output = weights[..., shared:] @ value[:, :, shared:]
    if shared:
        first = weights[..., :shared].transpose(0, 1).reshape(groups, -1, shared)
        together = first @ value[0, :, :shared]
        output = output + together.view(groups, batch, -1, width).transpose(0, 1)
    return output.reshape(batch, heads, time, width).transpose(1, 2)


def tree_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    layout: TreeLayout,
    scaling: float | None,
) -> Tensor:
    """Attend within trees: each branch to its ancestors, and causally to itself.

    Args:
        query: (1, heads, nodes, head_dim).
        key: (1, key heads, head and nodes, head_dim).
        value: Shaped like ``key``.
        layout: Of the trees.
        scaling: Of scores; None is one over the root of head_dim.

    Returns:
        (1, nodes, heads, head_dim).
    """
    keys, values = (t.split(list(layout.pieces), 2) for t in (key, value))
    found = []
    for branch, seen in zip(
        query.split(list(layout.queries), 2), layout.seen, strict=True
    ):
        before = torch.cat([keys[piece] for piece in seen], 2)
        new, total = branch.shape[2], before.shape[2]
        hidden = branch.new_full((new, total), -torch.inf).triu_(total - new + 1)
        attended = functional.scaled_dot_product_attention(
            branch,
            before,
            torch.cat([values[piece] for piece in seen], 2),
            attn_mask=hidden,
            scale=scaling,
            enable_gqa=query.shape[1] != key.shape[1],
        )
        found.append(attended)
    return torch.cat(found, 2).transpose(1, 2)
