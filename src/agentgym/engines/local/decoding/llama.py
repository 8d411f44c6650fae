"""FusedLlama: a small Llama's forward pass in few, large operations.

With one token per row and matrices of a few hundred columns, transformers' modules
spend most of their time on calling operations, not on computing. So the weights are
fused into fewer matrices: queries, keys and values in one, gate and up in another. The
weights of norms and the scale of attention scores are multiplied into them. The two
numbers of each rotary pair are adjacent, so that a rotation is one complex product. The
logits equal the model's own up to rounding; a test compares them.
"""

from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import LlamaForCausalLM

from agentgym.engines.local.attention import PackedRows
from agentgym.engines.local.model import LoadedModel


class _Layer(NamedTuple):
    """Matrices of one layer, transposed so that ``states @ matrix`` is the output."""

    inputs: Tensor
    output: Tensor
    gate_up: Tensor
    down: Tensor


class FusedLlama:
    """Computes logits with fused copies of a Llama's weights."""

    def __init__(self, model: LlamaForCausalLM, columns: int) -> None:
        config: Any = model.config
        self._model = model
        self._heads = int(config.num_attention_heads)
        self._rotated = self._heads + int(config.num_key_value_heads)
        self._head_dim = int(config.head_dim)
        self._eps = float(config.rms_norm_eps)
        frequencies = model.get_buffer("model.rotary_emb.inv_freq")
        angles = torch.outer(torch.arange(columns), frequencies.float())
        self._rotations = torch.polar(torch.ones_like(angles), angles)[:, None]
        self.refresh()

    @torch.no_grad()
    def refresh(self) -> None:
        """Fuse the model's weights again after they changed."""
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

    def logits(self, work: PackedRows, last: Tensor | None) -> Tensor:
        """Return the logits after each packed token, and write to the KV cache.

        ``last`` has the indices of the only tokens to return logits for; None for all.
        """
        rotations = self._rotations[work.positions]
        states = self._embedding[work.ids]
        for number, layer in enumerate(self._layers):
            mixed = self._normed(states) @ layer.inputs
            mixed = mixed.view(len(work.ids), -1, self._head_dim)
            pairs = mixed[:, : self._rotated].unflatten(-1, (-1, 2))
            torch.view_as_complex(pairs).mul_(rotations)
            query, new = mixed[:, : self._heads], mixed[:, self._heads :]
            work.cache.write(number, work.targets, new)
            if layer is self._layers[-1] and last is not None:
                query, states = query[last], states[last]
                work = work.ending(last)  # the other tokens are not needed any more
            attended = work.read(number, query).flatten(1)
            states = torch.addmm(states, attended, layer.output)
            gate, up = (self._normed(states) @ layer.gate_up).chunk(2, -1)
            states = torch.addmm(states, functional.silu(gate) * up, layer.down)
        logits: Tensor = self._normed(states) @ self._head
        return logits

    def _normed(self, states: Tensor) -> Tensor:
        return functional.rms_norm(states, states.shape[-1:], None, self._eps)


def fuse(loaded: LoadedModel) -> FusedLlama | None:
    """Return the fused form of a small Llama without an adapter; None for other models.

    A large model would not gain: it spends its time in matrix products, and a second
    copy of it would take memory.
    """
    model = loaded.model
    if type(model) is not LlamaForCausalLM or not loaded.is_small or loaded.roles:
        return None
    config: Any = model.config
    linears = [m for m in model.modules() if isinstance(m, nn.Linear)]
    plain = (
        config.hidden_act == "silu"
        and config.rope_parameters["rope_type"] == "default"
        and all(type(m) is nn.Linear and m.bias is None for m in linears)
        and loaded.adapter is None
        and model.dtype == torch.float32
    )
    return FusedLlama(model, loaded.context) if plain else None


def _interleave(weight: Tensor, head_dim: int) -> Tensor:
    """Reorder a matrix's outputs so that the two numbers of a rotary pair are adjacent.

    Before, a pair is the outputs i and i + head_dim / 2 of a head.
    """
    halves = weight.view(-1, 2, head_dim // 2, weight.shape[-1])
    return halves.transpose(1, 2).reshape(weight.shape)
