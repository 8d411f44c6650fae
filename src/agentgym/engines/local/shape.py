"""Shape and Use: describe a model's sizes and its training, to estimate memory.

Importing this module does not import torch.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
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
    """How a model is trained.

    Attributes:
        rank: Rank of the adapter; 0 trains all weights.
        is_half: Whether the frozen weights of a model with an adapter are bfloat16.
        recomputes: Whether the backward pass computes layers again; None does so for
            large models.
        longest: Most tokens of a trained sequence.
        on_gpu: Whether the model is on a GPU.
        cores: Number of CPU cores.
        samples: Whether the same process also samples.
        nodes: Most nodes of a prefix tree; None takes the default.
        adapters: Number of adapters.
        compares: Whether each update computes a KL penalty, which needs the untrained
            model.
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


@dataclass(frozen=True)
class Shape(ABC):
    """The sizes of a language model.

    Attributes:
        kind: transformers' ``model_type``.
        layers: Number of layers.
        hidden: Width of the hidden states.
        heads: Number of attention heads.
        key_heads: Number of heads of keys and values.
        vocabulary: Number of tokens in the vocabulary.
        context: Most tokens of prompt and answer.
    """

    kind: str
    layers: int
    hidden: int
    heads: int
    key_heads: int
    vocabulary: int
    context: int

    @property
    @abstractmethod
    def linear_parameters(self) -> int:
        """Number of weights in the linear layers that an adapter gets."""

    @property
    @abstractmethod
    def parameters(self) -> int:
        """Number of all parameters."""

    @abstractmethod
    def adapter_parameters(self, rank: int) -> int:
        """Return the number of parameters of one adapter."""

    @property
    @abstractmethod
    def cache_token(self) -> int:
        """How many numbers (scalars) each token adds to the KV cache."""

    @abstractmethod
    def kept(self, tokens: int, use: Use, size: int) -> tuple[int, int]:
        """Return the bytes that a forward pass keeps for its backward pass.

        Args:
            tokens: Number of tokens in the pass.
            use: How the model is trained.
            size: Bytes per number of the model's weights.

        Returns:
            The bytes of the largest layer, and of all layers.
        """

    @property
    def obstacles(self) -> tuple[str, ...]:
        """Why several sequences cannot be computed in one row; empty if they can."""
        return ()

    @property
    def has_experts(self) -> bool:
        """Whether the model is a mixture of experts."""
        return False

    @property
    def cache_fixed(self) -> int:
        """How many numbers of the KV cache do not depend on the text's length."""
        return 0


@dataclass(frozen=True)
class CountedShape(Shape):
    """Sizes of a known architecture, computed from ``config.json``.

    Attributes:
        inner: Width of the multilayer perceptron.
        head_dim: Width of an attention head.
        biases: Number of biases in the linear layers of one model layer.
        norms: Number of weights in the norms of one model layer.
        is_tied: Whether the output head shares the embedding's weights.
    """

    inner: int
    head_dim: int
    biases: int
    norms: int
    is_tied: bool

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self | None:
        """Return the shape for a ``config.json``; None for an unknown architecture.

        The known architectures are Llama, Mistral, Qwen2 (with Qwen2.5) and Qwen3,
        without sliding windows.
        """
        kind = config.get("model_type")
        has_window = config.get("sliding_window") is not None
        if has_window and (kind == "mistral" or config.get("use_sliding_window")):
            return None
        try:
            hidden, heads = int(config["hidden_size"]), config["num_attention_heads"]
            inner = int(config["intermediate_size"])
            keys = int(config.get("num_key_value_heads") or heads)
            usual = 128 if kind == "qwen3" else hidden // heads
            head = int(config.get("head_dim") or usual)
            layers, vocabulary = config["num_hidden_layers"], config["vocab_size"]
            context = int(config.get("max_position_embeddings", 2048))
        except (KeyError, TypeError, ValueError, ZeroDivisionError):
            return None
        attended = (heads + 2 * keys) * head
        biased = attended + hidden if config.get("attention_bias") else 0
        biases = {
            "llama": biased + (2 * inner + hidden if config.get("mlp_bias") else 0),
            "mistral": 0,
            "qwen2": attended,
            "qwen3": biased,
        }.get(str(kind))
        if biases is None:
            return None
        return cls(
            kind=str(kind),
            layers=int(layers),
            hidden=hidden,
            inner=inner,
            heads=int(heads),
            key_heads=keys,
            head_dim=head,
            vocabulary=int(vocabulary),
            context=context,
            biases=biases,
            norms=2 * hidden + (2 * head if kind == "qwen3" else 0),
            is_tied=bool(config.get("tie_word_embeddings", False)),
        )

    @property
    def linears(self) -> list[tuple[int, int]]:
        """Input and output size of each linear layer in one model layer."""
        query, key = self.heads * self.head_dim, self.key_heads * self.head_dim
        attention = [(self.hidden, query), (self.hidden, key), (self.hidden, key)]
        mlp = [(self.hidden, self.inner)] * 2 + [(self.inner, self.hidden)]
        return [*attention, (query, self.hidden), *mlp]

    @property
    def linear_parameters(self) -> int:
        """Number of weights in the linear layers that an adapter gets."""
        return self.layers * sum(given * made for given, made in self.linears)

    @property
    def parameters(self) -> int:
        """Number of all parameters."""
        embeddings = self.vocabulary * self.hidden * (1 if self.is_tied else 2)
        rest = self.layers * (self.biases + self.norms) + self.hidden
        return embeddings + self.linear_parameters + rest

    def adapter_parameters(self, rank: int) -> int:
        """Return the number of parameters of one adapter."""
        return self.layers * rank * sum(map(sum, self.linears))

    @property
    def cache_token(self) -> int:
        """How many numbers (scalars) each token adds to the KV cache."""
        return 2 * self.layers * self.key_heads * self.head_dim

    def kept(self, tokens: int, use: Use, size: int) -> tuple[int, int]:
        """Return the bytes that a forward pass keeps; see :meth:`Shape.kept`."""
        query, key = self.heads * self.head_dim, self.key_heads * self.head_dim
        hidden, inner = self.hidden, self.inner
        # Two norms (in float32, before and after the weight), rotation and attention
        # with their copies, the perceptron, and the sums after each half.
        each = 2 * (FLOAT + 2 * size) * hidden + 6 * size * query + 4 * size * inner
        each += 2 * size * hidden + 4 * size * key + FLOAT * self.heads
        if use.rank:
            each += len(self.linears) * size * use.rank
        return tokens * each, self.layers * tokens * each


@dataclass(frozen=True)
class Growth:
    """Bytes as a function of the number of tokens n: ``each * n + pair * n²``."""

    each: float
    pair: float = 0.0

    @classmethod
    def of(cls, first: tuple[int, int], second: tuple[int, int]) -> Self:
        """Fit the function to two measurements, each (tokens, bytes).

        It is never below the measured bytes, and ``pair`` is never negative.
        """
        (few, least), (many, most) = first, second
        pair = max(0.0, (most / many - least / few) / (many - few))
        return cls(max(least / few, most / many) - pair * few, pair)

    def at(self, tokens: int) -> int:
        """Return the number of bytes for ``tokens`` tokens."""
        return int(tokens * (self.each + tokens * self.pair))


@dataclass(frozen=True)
class MeasuredShape(Shape):
    """Sizes of an architecture that CountedShape does not know, found by measuring.

    Attributes:
        blocked: Value of ``obstacles``.
        expert: Value of ``has_experts``.
        held: Value of ``parameters``.
        adapted: Input and output size of each layer that an adapter gets.
        growing: Value of ``cache_token``.
        fixed: Value of ``cache_fixed``.
        largest: Bytes that the largest layer keeps for the backward pass, by the bytes
            per number of the weights (2 or 4).
        whole: Bytes that all layers together keep, also by bytes per number.
    """

    blocked: tuple[str, ...]
    expert: bool
    held: int
    adapted: tuple[tuple[int, int], ...]
    growing: int
    fixed: int
    largest: Mapping[int, Growth]
    whole: Mapping[int, Growth]

    @property
    def obstacles(self) -> tuple[str, ...]:
        """Why several sequences cannot be computed in one row; empty if they can."""
        return self.blocked

    @property
    def has_experts(self) -> bool:
        """Whether the model is a mixture of experts."""
        return self.expert

    @property
    def linear_parameters(self) -> int:
        """Number of weights in the linear layers that an adapter gets."""
        return sum(given * made for given, made in self.adapted)

    @property
    def parameters(self) -> int:
        """Number of all parameters."""
        return self.held

    def adapter_parameters(self, rank: int) -> int:
        """Return the number of parameters of one adapter."""
        return rank * sum(map(sum, self.adapted))

    @property
    def cache_token(self) -> int:
        """How many numbers (scalars) each token adds to the KV cache."""
        return self.growing

    @property
    def cache_fixed(self) -> int:
        """How many numbers of the KV cache do not depend on the text's length."""
        return self.fixed

    def kept(self, tokens: int, use: Use, size: int) -> tuple[int, int]:
        """Return the bytes that a forward pass keeps; see :meth:`Shape.kept`."""
        added = 0
        if use.rank:
            added = len(self.adapted) * FLOAT * use.rank
            if size != FLOAT:
                added += FLOAT * sum(given for given, _ in self.adapted)
        whole = self.whole[size].at(tokens) + tokens * added
        largest = self.largest[size].at(tokens) + tokens * added // self.layers
        return largest, whole
