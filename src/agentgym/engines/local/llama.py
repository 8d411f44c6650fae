"""A small Llama's forward pass in few, large operations.

With rows of one token and matrices of a few hundred columns, most of the time of
transformers' modules goes into calling operations, not into computing. Here the
weights of a version are put together once: queries, keys and values in one matrix,
gate and up in another, the norms' weights and the scale of the scores folded in, and
the two halves of each rotary pair side by side, so that a rotation is one complex
product. The result is the model's own up to rounding; a test compares them.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import LlamaForCausalLM

from agentgym.engines.local.attention import FEW_QUERIES, decode_attention
from agentgym.engines.local.kv_cache import BatchCache
from agentgym.engines.local.loading import LoadedModel


@dataclass(frozen=True)
class Pass:
    """What one forward pass is about: some new tokens of each row, packed.

    Attributes:
        ids: New tokens, row after row, (tokens,).
        rows: Theirs, from 0, same shape.
        places: How many new tokens their row has before them, same shape.
        positions: Their columns, same shape.
        last: Each row's last new token, (rows,), if what follows it is all that is
            asked for; None asks for what follows every token.
        first: First row of the cache.
        mask: Additive, (rows, 1, time, columns that the attention sees).
        shared_prefix: How many first tokens are the same in every row.
    """

    ids: Tensor
    rows: Tensor
    places: Tensor
    positions: Tensor
    last: Tensor | None
    first: int
    mask: Tensor
    shared_prefix: int = 0


@dataclass(frozen=True)
class _Layer:
    """Matrices of one layer, as factors on the right."""

    inputs: Tensor
    output: Tensor
    gate_up: Tensor
    down: Tensor


class FusedLlama:
    """Predicts with fused copies of a Llama's weights.

    Args:
        model: As :func:`fuse` checks it.
        columns: Most tokens of a row.
    """

    def __init__(self, model: LlamaForCausalLM, columns: int) -> None:
        config: Any = model.config
        self._model = model
        self._heads = int(config.num_attention_heads)
        self._key_heads = int(config.num_key_value_heads)
        self._head_dim = int(config.head_dim)
        self._eps = float(config.rms_norm_eps)
        frequencies = model.get_buffer("model.rotary_emb.inv_freq")
        angles = torch.outer(torch.arange(columns), frequencies.float())
        self._rotations = torch.polar(torch.ones_like(angles), angles)[:, None]
        self.refresh()

    @torch.no_grad()
    def refresh(self) -> None:
        """Take over the model's weights, which have changed."""
        weights = {
            name.removesuffix(".weight"): tensor
            for name, tensor in self._model.state_dict().items()
        }
        count = self._model.config.num_hidden_layers
        self._embedding = weights["model.embed_tokens"]
        self._layers = [self._fuse(weights, f"model.layers.{i}.") for i in range(count)]
        self._head = (weights["lm_head"] * weights["model.norm"]).t()

    def _fuse(self, weights: dict[str, Tensor], layer: str) -> _Layer:
        attention, mlp = f"{layer}self_attn.", f"{layer}mlp."
        queries = weights[attention + "q_proj"] * self._head_dim**-0.5
        inputs = [
            _interleave(queries, self._head_dim),
            _interleave(weights[attention + "k_proj"], self._head_dim),
            weights[attention + "v_proj"],
        ]
        gate_up = [weights[mlp + "gate_proj"], weights[mlp + "up_proj"]]
        before, between = f"{layer}input_layernorm", f"{layer}post_attention_layernorm"
        return _Layer(
            inputs=(torch.cat(inputs) * weights[before]).t(),
            output=weights[attention + "o_proj"].t(),
            gate_up=(torch.cat(gate_up) * weights[between]).t(),
            down=weights[mlp + "down_proj"].t(),
        )

    def logits(self, work: Pass, cache: BatchCache) -> Tensor:
        """Write the new tokens' keys and values, and predict.

        Returns:
            Logits, (rows, vocabulary), or without ``last`` (tokens, vocabulary).
        """
        rows = slice(work.first, work.first + work.mask.shape[0])
        places = cache.places(work.first + work.rows, work.positions)
        rotations = self._rotations[work.positions]
        rotated = self._heads + self._key_heads
        mask, slots = work.mask, (work.rows, work.places)
        states = self._embedding[work.ids]
        final = self._layers[-1]
        for number, layer in enumerate(self._layers):
            mixed = self._normed(states) @ layer.inputs
            mixed = mixed.view(len(work.ids), -1, self._head_dim)
            pairs = mixed[:, :rotated].unflatten(-1, (-1, 2))
            torch.view_as_complex(pairs).mul_(rotations)
            query, new = mixed[:, : self._heads], mixed[:, self._heads :]
            cache.write(number, places, new)
            if layer is final and work.last is not None:  # the others served their use
                query, states = query[work.last], states[work.last]
                row, place = work.rows[work.last], work.places[work.last]
                mask = mask[row, :, place][:, :, None]
                slots = (row, torch.zeros_like(row))
            keys, values = cache.read(number, rows, mask.shape[-1])
            query = _spread(query, slots, mask)
            attended = self._attend(query, keys, values, mask, work.shared_prefix)
            attended = attended[slots].flatten(1)
            states = torch.addmm(states, attended, layer.output)
            gate, up = (self._normed(states) @ layer.gate_up).chunk(2, -1)
            states = torch.addmm(states, functional.silu(gate) * up, layer.down)
        logits: Tensor = self._normed(states) @ self._head
        return logits

    def _normed(self, states: Tensor) -> Tensor:
        return functional.rms_norm(states, states.shape[-1:], None, self._eps)

    def _attend(
        self, query: Tensor, keys: Tensor, values: Tensor, mask: Tensor, shared: int
    ) -> Tensor:
        """Return what each query attends to, (rows, time, heads, head_dim)."""
        if query.shape[2] <= FEW_QUERIES:
            return decode_attention(query, keys, values, mask, shared)
        return functional.scaled_dot_product_attention(
            query,
            keys,
            values,
            attn_mask=mask,
            scale=1.0,
            enable_gqa=self._heads != self._key_heads,
        ).transpose(1, 2)


def fuse(loaded: LoadedModel) -> FusedLlama | None:
    """Return the fused form of a small, plain Llama; None for any other model.

    A large one spends its time in its matrices, and would be held twice.
    """
    model = loaded.model
    if type(model) is not LlamaForCausalLM or not loaded.is_small:
        return None
    config: Any = model.config
    linears = [m for m in model.modules() if isinstance(m, nn.Linear)]
    plain = (
        config.hidden_act == "silu"
        and config.rope_parameters["rope_type"] == "default"
        and all(type(linear) is nn.Linear for linear in linears)
        and all(linear.bias is None for linear in linears)
        and all(p.dtype == torch.float32 for p in model.parameters())
        and loaded.adapter is None
    )
    return FusedLlama(model, loaded.context) if plain else None


def _spread(query: Tensor, slots: tuple[Tensor, Tensor], mask: Tensor) -> Tensor:
    """Put packed queries into their rows, (rows, heads, time, head_dim)."""
    count, _, time, _ = mask.shape
    spread = query.new_zeros(count, time, *query.shape[1:])
    spread[slots] = query
    return spread.transpose(1, 2)


def _interleave(weight: Tensor, head_dim: int) -> Tensor:
    """Put output i of a head beside output i + head_dim / 2, its rotary partner."""
    halves = weight.view(-1, 2, head_dim // 2, weight.shape[-1])
    return halves.transpose(1, 2).reshape(weight.shape)
