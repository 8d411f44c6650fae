"""Shape and Use: the sizes of a model and its training, which determine its memory.

Importing this imports no torch.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

FLOAT = 4
"""Bytes of a float32."""
SEEN = 8
"""Number of a tree's branches assumed to attend to as much as the longest episode."""


@dataclass(frozen=True)
class Use:
    """How a model is trained.

    Attributes:
        rank: Rank of its adapter; 0 trains all weights.
        is_half: Whether the frozen weights below an adapter are bfloat16.
        recomputes: Whether backward computes layers again; None does so for large
            models.
        longest: Most tokens of a trained sequence.
        on_gpu: Whether it is on a GPU.
        cores: Number of CPU cores.
        samples: Whether it also samples; else it only learns.
        nodes: Most nodes of a prefix tree; None takes the default.
        adapters: Number of adapters.
        compares: Whether each update computes the KL penalty against the untrained
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
    """The sizes of a decoder.

    Attributes:
        kind: transformers' ``model_type``.
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
        """Return the parameters of an adapter for all linear layers but the last."""

    @property
    @abstractmethod
    def cache_token(self) -> int:
        """Numbers (scalars) that each token adds to the cache."""

    @abstractmethod
    def kept(self, tokens: int, use: Use, size: int) -> tuple[int, int]:
        """Return the bytes that a forward pass keeps for its backward pass.

        Args:
            tokens: Tokens in one row.
            use: How the model is trained.
            size: Bytes of a frozen weight.

        Returns:
            The bytes of the largest layer, and of all layers.
        """

    @property
    def obstacles(self) -> tuple[str, ...]:
        """Why tokens of several sequences cannot be packed; empty if they can."""
        return ()

    @property
    def has_experts(self) -> bool:
        """Whether it is a mixture of experts."""
        return False

    @property
    def cache_fixed(self) -> int:
        """Numbers in the cache that do not grow with the text."""
        return 0


@dataclass(frozen=True)
class CountedShape(Shape):
    """Model sizes, computed from the settings in ``config.json``.

    Attributes:
        inner: Width of the multilayer perceptron.
        biases: Number of biases in one layer's linear layers.
        norms: Number of weights in one layer's norms.
        is_tied: Whether the last layer shares the embedding's weights.
    """

    inner: int
    head_dim: int
    biases: int
    norms: int
    is_tied: bool

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Self | None:
        """Return the shape for a ``config.json``; None for an unknown architecture.

        Known are Llama, Mistral, Qwen2 (Qwen2.5 too) and Qwen3, without sliding
        windows.
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
        """Input and output sizes of one layer's linear layers."""
        query, key = self.heads * self.head_dim, self.key_heads * self.head_dim
        attention = [(self.hidden, query), (self.hidden, key), (self.hidden, key)]
        mlp = [(self.hidden, self.inner)] * 2 + [(self.inner, self.hidden)]
        return [*attention, (query, self.hidden), *mlp]

    @property
    def linear_parameters(self) -> int:
        """Number of weights in all layers' linear layers."""
        return self.layers * sum(given * made for given, made in self.linears)

    @property
    def parameters(self) -> int:
        """Number of all parameters."""
        embeddings = self.vocabulary * self.hidden * (1 if self.is_tied else 2)
        rest = self.layers * (self.biases + self.norms) + self.hidden
        return embeddings + self.linear_parameters + rest

    def adapter_parameters(self, rank: int) -> int:
        """Return the parameters of an adapter for all linear layers but the last."""
        return self.layers * rank * sum(map(sum, self.linears))

    @property
    def cache_token(self) -> int:
        """Numbers (scalars) that each token adds to the cache."""
        return 2 * self.layers * self.key_heads * self.head_dim

    def kept(self, tokens: int, use: Use, size: int) -> tuple[int, int]:
        """Return the bytes that a forward pass keeps; see :class:`Shape`."""
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
    """Bytes as a function of the number of tokens: a linear and a quadratic part."""

    each: float
    pair: float = 0.0

    @classmethod
    def of(cls, first: tuple[int, int], second: tuple[int, int]) -> Self:
        """Return a bound through two measurements, of tokens and bytes."""
        (few, least), (many, most) = first, second
        pair = max(0.0, (most / many - least / few) / (many - few))
        return cls(max(least / few, most / many) - pair * few, pair)

    def at(self, tokens: int) -> int:
        """Return the bytes for a number of tokens."""
        return int(tokens * (self.each + tokens * self.pair))


@dataclass(frozen=True)
class MeasuredShape(Shape):
    """Model sizes of another architecture, measured on a model without weights.

    Attributes:
        blocked: See ``obstacles``.
        expert: See ``has_experts``.
        held: Number of all parameters.
        adapted: Input and output sizes of each layer that an adapter gets.
        growing: Numbers that each token adds to the cache.
        fixed: Numbers in the cache that do not grow.
        largest: Bytes that the largest layer keeps for backward, by the bytes of a
            number.
        whole: The same for all layers together.
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
        """Reasons why tokens of several sequences cannot be packed."""
        return self.blocked

    @property
    def has_experts(self) -> bool:
        """Whether it is a mixture of experts."""
        return self.expert

    @property
    def linear_parameters(self) -> int:
        """Number of weights in the layers that an adapter gets."""
        return sum(given * made for given, made in self.adapted)

    @property
    def parameters(self) -> int:
        """Number of all parameters."""
        return self.held

    def adapter_parameters(self, rank: int) -> int:
        """Return the number of parameters of an adapter."""
        return rank * sum(map(sum, self.adapted))

    @property
    def cache_token(self) -> int:
        """Numbers (scalars) that each token adds to the cache."""
        return self.growing

    @property
    def cache_fixed(self) -> int:
        """Numbers in the cache that do not grow with the text."""
        return self.fixed

    def kept(self, tokens: int, use: Use, size: int) -> tuple[int, int]:
        """Return the bytes that a forward pass keeps; see :class:`Shape`."""
        added = 0
        if use.rank:
            added = len(self.adapted) * FLOAT * use.rank
            if size != FLOAT:
                added += FLOAT * sum(given for given, _ in self.adapted)
        whole = self.whole[size].at(tokens) + tokens * added
        largest = self.largest[size].at(tokens) + tokens * added // self.layers
        return largest, whole
