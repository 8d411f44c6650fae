"""Shape and Use: describe a model's sizes and its training, to estimate memory.

Importing this module does not import torch.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

FLOAT = 4
"""Bytes of a float32 number."""
SEEN = 8
"""Assumed number of branches (parts of a prefix tree) that attend to as many tokens as
the longest episode has. A tree with more nodes than the default has
proportionally more such branches."""


@dataclass(frozen=True)
class Use:
    """How a model is trained: the settings that decide how much memory it takes.

    Attributes:
        rank: Rank of the adapter; 0 trains all weights.
        is_half: Whether the frozen weights of a model with an adapter are bfloat16.
        recomputes: Whether the backward pass computes layers again; None does so for
            models that are not small, in micro-batches of more than ``kept`` tokens.
        longest: Most tokens of a trained sequence.
        on_gpu: Whether the model is on a GPU.
        cores: Number of CPU cores.
        samples: Whether the same process also samples.
        nodes: Most nodes (tokens) of a prefix tree; None takes the default.
        adapters: Number of adapters: one, or one per role.
        compares: Whether each update computes a KL penalty, which needs the untrained
            model.
        kept: Most tokens of a micro-batch whose layers are not computed again if
            ``recomputes`` is None.
    """

    rank: int
    is_half: bool = False
    recomputes: bool | None = None
    longest: int = 8192
    on_gpu: bool = False
    cores: int = 1
    samples: bool = True
    nodes: int | None = None
    adapters: int = 1
    compares: bool = False
    kept: int = 0


@dataclass(frozen=True)
class Growth:
    """Bytes as a function of the number of tokens n: ``each * n + pair * n²``."""

    each: float
    pair: float = 0.0

    @classmethod
    def of(cls, first: tuple[int, int], second: tuple[int, int]) -> Self:
        """Fit the function to two measurements, each (tokens, bytes)."""
        (few, least), (many, most) = first, second
        pair = max(0.0, (most / many - least / few) / (many - few))
        return cls(max(least / few, most / many) - pair * few, pair)

    def at(self, tokens: int) -> int:
        """Return the number of bytes for ``tokens`` tokens."""
        return int(tokens * (self.each + tokens * self.pair))


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The sizes of a language model.

    Attributes:
        kind: transformers' ``model_type``.
        layers: Number of layers.
        hidden: Width of the hidden states.
        heads: Number of attention heads.
        key_heads: Number of heads of keys and values.
        vocabulary: Number of tokens in the vocabulary.
        context: Most tokens of prompt and answer.
        parameters: Number of all parameters.
        adapted: Input and output size of each linear layer that gets an adapter.
        cache_token: How many numbers (scalars) each token adds to the KV cache.
        cache_fixed: How many numbers of the KV cache do not depend on the text's
            length.
        obstacles: Why several sequences cannot be computed in one row; empty if they
            can.
        has_experts: Whether the model is a mixture of experts.
        largest: Bytes that the largest layer keeps for the backward pass, by the bytes
            per number of the weights (2 or 4).
        whole: Bytes that all layers together keep, also by bytes per number.
        per_rank: Bytes per token that an adapter adds to ``whole`` for each of its
            ranks, by bytes per number.
        half_inputs: Bytes per token that an adapter of weights of 2 bytes adds to
            ``whole``, whatever its rank.
    """

    kind: str
    layers: int
    hidden: int
    heads: int
    key_heads: int
    vocabulary: int
    context: int
    parameters: int
    adapted: Sequence[tuple[int, int]]
    cache_token: int
    cache_fixed: int = 0
    obstacles: tuple[str, ...] = ()
    has_experts: bool = False
    largest: Mapping[int, Growth]
    whole: Mapping[int, Growth]
    per_rank: Mapping[int, int]
    half_inputs: int = 0

    @property
    def linear_parameters(self) -> int:
        """Number of weights in the linear layers that get an adapter."""
        return sum(given * made for given, made in self.adapted)

    def adapter_parameters(self, rank: int) -> int:
        """Return the number of parameters of one adapter."""
        return rank * sum(map(sum, self.adapted))

    def kept(self, tokens: int, rank: int, size: int) -> tuple[int, int]:
        """Return the bytes that a forward pass keeps for its backward pass.

        Args:
            tokens: Number of tokens of the pass.
            rank: Rank of the adapter; 0 for none.
            size: Bytes per number of the model's weights, 2 or 4.

        Returns:
            The bytes of the largest layer, and those of all layers together.
        """
        each = rank * self.per_rank[size]
        each += self.half_inputs if rank and size != FLOAT else 0
        added = tokens * each
        largest = self.largest[size].at(tokens) + added // self.layers
        return largest, self.whole[size].at(tokens) + added

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self | None:
        """Count the sizes of a ``config.json``; None for an unknown architecture."""
        kind = config.get("model_type")
        has_window = config.get("sliding_window") is not None
        if has_window and (kind == "mistral" or config.get("use_sliding_window")):
            return None
        try:
            hidden, heads = (
                int(config["hidden_size"]),
                int(config["num_attention_heads"]),
            )
            inner = int(config["intermediate_size"])
            key_heads = int(config.get("num_key_value_heads") or heads)
            usual = 128 if kind == "qwen3" else hidden // heads
            head = int(config.get("head_dim") or usual)
            layers = int(config["num_hidden_layers"])
            vocabulary = int(config["vocab_size"])
            context = int(config.get("max_position_embeddings", 2048))
        except (KeyError, TypeError, ValueError, ZeroDivisionError):
            return None
        query, key = heads * head, key_heads * head
        attended = query + 2 * key
        biased = attended + hidden if config.get("attention_bias") else 0
        biases = {
            "llama": biased + (2 * inner + hidden if config.get("mlp_bias") else 0),
            "mistral": 0,
            "qwen2": attended,
            "qwen3": biased,
        }.get(str(kind))
        if biases is None:
            return None
        attention = [(hidden, query), (hidden, key), (hidden, key), (query, hidden)]
        linears = [*attention, (hidden, inner), (hidden, inner), (inner, hidden)]
        norms = 2 * hidden + (2 * head if kind == "qwen3" else 0)
        layer = sum(given * made for given, made in linears) + biases + norms
        matrices = 1 if config.get("tie_word_embeddings", False) else 2
        # Two norms (in float32, before and after the weight), rotation and attention
        # with their copies, the perceptron, and the sums after each half.
        kept = {
            size: 2 * (FLOAT + 2 * size) * hidden
            + 6 * size * query
            + 4 * size * inner
            + 2 * size * hidden
            + 4 * size * key
            + FLOAT * heads
            for size in (FLOAT // 2, FLOAT)
        }
        return cls(
            kind=str(kind),
            layers=layers,
            hidden=hidden,
            heads=heads,
            key_heads=key_heads,
            vocabulary=vocabulary,
            context=context,
            parameters=layers * layer + hidden + matrices * vocabulary * hidden,
            adapted=layers * linears,
            cache_token=2 * layers * key,
            largest={size: Growth(each) for size, each in kept.items()},
            whole={size: Growth(layers * each) for size, each in kept.items()},
            per_rank={size: layers * len(linears) * size for size in kept},
        )
