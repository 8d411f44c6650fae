"""The training-time model: a small Llama in plain torch, fast on two CPU cores.

It computes what ``transformers.LlamaForCausalLM`` computes (a test compares their
logits), but takes right-padded batches without a mask, applies the language-model
head only at supervised positions, and is small enough to read in a minute.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812


@dataclass(frozen=True)
class NanoConfig:
    """The policy's shape; the defaults are what ships."""

    vocab_size: int = 2560
    width: int = 192
    layers: int = 4
    heads: int = 3
    head_dim: int = 64
    hidden: int = 512
    context: int = 1024
    rope_theta: float = 1e6
    eps: float = 1e-5


class Block(nn.Module):
    """One decoder layer: attention and a gated MLP, each after a norm."""

    def __init__(self, config: NanoConfig) -> None:
        super().__init__()
        c = self.c = config
        inner = c.heads * c.head_dim
        self.norm1 = nn.Parameter(torch.ones(c.width))
        self.norm2 = nn.Parameter(torch.ones(c.width))
        self.q = nn.Linear(c.width, inner, bias=False)
        self.k = nn.Linear(c.width, inner, bias=False)
        self.v = nn.Linear(c.width, inner, bias=False)
        self.o = nn.Linear(inner, c.width, bias=False)
        self.gate = nn.Linear(c.width, c.hidden, bias=False)
        self.up = nn.Linear(c.width, c.hidden, bias=False)
        self.down = nn.Linear(c.hidden, c.width, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Map ``x`` of shape (batch, time, width) to the same shape."""
        c, (b, t, _) = self.c, x.shape
        h = F.rms_norm(x, (c.width,), self.norm1, c.eps)
        q, k, v = (
            p(h).view(b, t, c.heads, c.head_dim).transpose(1, 2)
            for p in (self.q, self.k, self.v)
        )
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(b, t, -1))
        h = F.rms_norm(x, (c.width,), self.norm2, c.eps)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Apply rotary embedding in float32 (half-split layout, as in transformers)."""
    a, b = x.float().chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)


class Nano(nn.Module):
    """The whole policy, with tied embeddings."""

    cos: Tensor
    sin: Tensor

    def __init__(self, config: NanoConfig) -> None:
        super().__init__()
        self.config = config
        self.embed = nn.Embedding(config.vocab_size, config.width)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.Parameter(torch.ones(config.width))
        half = config.head_dim // 2
        inverse = config.rope_theta ** (-torch.arange(half).float() / half)
        angle = torch.arange(config.context).float()[:, None] * inverse
        self.register_buffer("cos", angle.cos(), persistent=False)
        self.register_buffer("sin", angle.sin(), persistent=False)
        nn.init.normal_(self.embed.weight, std=0.05)
        for block in self.blocks:
            for name, weight in block.named_parameters():
                if weight.ndim == 2:
                    deep = name in ("o.weight", "down.weight")
                    scale = (2 * config.layers) ** 0.5 if deep else 1.0
                    nn.init.normal_(weight, std=weight.shape[1] ** -0.5 / scale)

    def forward(self, ids: Tensor) -> Tensor:
        """Return final hidden states, (batch, time, width), of right-padded ids."""
        t = ids.shape[1]
        x = self.embed(ids)
        cos, sin = self.cos[:t].float(), self.sin[:t].float()
        for block in self.blocks:
            x = block(x, cos, sin)
        return F.rms_norm(x, (self.config.width,), self.norm, self.config.eps)

    def loss(self, ids: Tensor, places: Tensor, targets: Tensor) -> Tensor:
        """Return the mean cross-entropy of the tokens that the model writes.

        Args:
            ids: Token ids, (batch, time), padded on the right.
            places: Flat positions in ``ids`` before each supervised token.
            targets: The supervised tokens, one per place.
        """
        x = self(ids).flatten(0, 1).index_select(0, places)
        return F.cross_entropy((x @ self.embed.weight.T).float(), targets)


def llama_names(config: NanoConfig) -> dict[str, str]:
    """Return this model's parameter names by their names in transformers."""
    names = {"model.embed_tokens.weight": "embed.weight", "model.norm.weight": "norm"}
    parts = {
        "input_layernorm": "norm1",
        "post_attention_layernorm": "norm2",
        **{f"self_attn.{p}_proj": f"{p}.weight" for p in "qkvo"},
        **{f"mlp.{p}_proj": f"{p}.weight" for p in ("gate", "up", "down")},
    }
    for i in range(config.layers):
        for theirs, ours in parts.items():
            names[f"model.layers.{i}.{theirs}.weight"] = f"blocks.{i}.{ours}"
    return names


def exported(config: NanoConfig, folder: Path) -> dict[str, Tensor]:
    """Read the weights that :func:`export` wrote, in float32 and by this model's names."""
    from safetensors.torch import load_file

    state = load_file(folder / "model.safetensors")
    names = llama_names(config).items()
    return {ours: state[theirs].float() for theirs, ours in names}


def export(config: NanoConfig, weights: dict[str, Tensor], folder: Path) -> None:
    """Write ``weights`` as a bf16 ``LlamaForCausalLM`` that transformers loads."""
    from transformers import GenerationConfig, LlamaConfig, LlamaForCausalLM

    llama = LlamaForCausalLM(
        LlamaConfig(
            vocab_size=config.vocab_size,
            hidden_size=config.width,
            intermediate_size=config.hidden,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            num_key_value_heads=config.heads,
            head_dim=config.head_dim,
            max_position_embeddings=config.context,
            rope_parameters={"rope_type": "default", "rope_theta": config.rope_theta},
            rms_norm_eps=config.eps,
            tie_word_embeddings=True,
            bos_token_id=None,
            pad_token_id=0,
            eos_token_id=1,
        )
    )
    state = {theirs: weights[ours] for theirs, ours in llama_names(config).items()}
    llama.load_state_dict({**state, "lm_head.weight": weights["embed.weight"]})
    llama.generation_config = GenerationConfig(pad_token_id=0, eos_token_id=1)
    llama.to(torch.bfloat16).save_pretrained(folder)  # type: ignore[arg-type]
