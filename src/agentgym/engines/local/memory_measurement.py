"""Measure a model's memory without its weights, on torch's meta device.

This is for architectures that :meth:`Shape.of` does not know. It measures the
sizes of parameters, adapter and cache, and the memory that a forward pass keeps for the
backward pass. It takes a second or two, whatever the model's size.
"""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    AutoConfig,
    PreTrainedModel,
)
from transformers.masking_utils import sdpa_mask
from transformers.modeling_layers import GradientCheckpointingLayer

from agentgym.engines.adapter import adapted_layers, has_experts
from agentgym.engines.local.architecture import find_class, find_traits, longest_text
from agentgym.engines.local.quiet import quiet
from agentgym.engines.local.shape import FLOAT, Growth, Shape
from agentgym.errors import ModelError, first_line

_FUSED = "agentgym_fused"
_LENGTHS = 256, 512
"""Number of tokens of each measurement: more than one chunk of linear attention."""
_TYPES = {FLOAT: torch.float32, FLOAT // 2: torch.bfloat16}


def measure(name: str, folder: Path) -> Shape:
    """Measure the sizes of the model that the ``config.json`` in a folder describes."""
    with quiet():
        maker = find_class(name, str(folder))
        try:
            config = AutoConfig.from_pretrained(folder)
            with torch.device("meta"):
                model: PreTrainedModel = maker.from_config(
                    config, attn_implementation="eager", dtype=torch.float32
                )
        except (ValueError, TypeError, KeyError, AttributeError, RuntimeError) as error:
            reason = first_line(error)
            raise ModelError(
                f"The settings in {folder / 'config.json'} make no model: {reason}"
            ) from error
        traits = find_traits(name, model)
        if not traits.needs_eager:
            AttentionInterface.register(_FUSED, _fused)
            AttentionMaskInterface.register(_FUSED, sdpa_mask)
            model.set_attn_implementation(_FUSED)
        text: Any = config.get_text_config()
        kept = {}
        for size, dtype in _TYPES.items():
            model.to(dtype=dtype)  # type: ignore[call-arg]
            kept[size] = _kept(name, model)
    layers = int(text.num_hidden_layers)
    heads = int(getattr(text, "num_attention_heads", 1) or 1)
    weights = [m.get_parameter("weight") for m in adapted_layers(model).values()]
    return Shape(
        kind=str(text.model_type),
        layers=layers,
        hidden=int(text.hidden_size),
        heads=heads,
        key_heads=int(getattr(text, "num_key_value_heads", 0) or heads),
        vocabulary=int(text.vocab_size),
        context=longest_text(config),
        parameters=model.num_parameters(),
        adapted=[(w.shape[1], w.shape[0]) for w in weights],
        cache_token=traits.growing,
        cache_fixed=traits.bounded,
        obstacles=traits.obstacles,
        has_experts=has_experts(model),
        largest={size: largest for size, (largest, _) in kept.items()},
        whole={size: whole for size, (_, whole) in kept.items()},
        per_rank=dict.fromkeys(_TYPES, FLOAT * len(weights)),
        half_inputs=FLOAT * sum(w.shape[1] for w in weights),
    )


def _kept(name: str, model: PreTrainedModel) -> tuple[Growth, Growth]:
    """Measure how many bytes a forward pass keeps for its backward pass."""
    try:
        (small, all_small), (large, all_large) = (
            _kept_of(model, tokens) for tokens in _LENGTHS
        )
    except RuntimeError as error:
        raise ModelError(
            f"The memory of {name!r} (architecture {model.config.model_type!r}) cannot "
            f"be estimated: {first_line(error)}"
        ) from error
    few, many = _LENGTHS
    return (
        Growth.of((few, small), (many, large)),
        Growth.of((few, all_small), (many, all_large)),
    )


def _kept_of(model: PreTrainedModel, tokens: int) -> tuple[int, int]:
    """Return the bytes of :func:`_kept` for a sequence of ``tokens`` tokens."""
    weights = {p.untyped_storage()._cdata for p in model.parameters()}
    alive: list[Tensor] = []  # so that no storage reuses another's id
    counted: set[int] = set()
    parts = [0]

    def count(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in weights and storage._cdata not in counted:
            counted.add(storage._cdata)
            alive.append(tensor)
            parts[-1] += storage.nbytes()
        return tensor

    def begin(*_: object) -> None:
        parts.append(0)

    decoder = model.get_decoder()
    hooks = [
        layer.register_forward_pre_hook(begin)
        for layer in decoder.modules()
        if isinstance(layer, GradientCheckpointingLayer)
    ]
    ids = torch.zeros(1, tokens, dtype=torch.long, device=model.device)
    mask = torch.zeros(1, 1, tokens, tokens, dtype=model.dtype, device=model.device)
    try:
        with torch.autograd.graph.saved_tensors_hooks(count, lambda tensor: tensor):
            decoder(
                input_ids=ids, position_ids=ids, attention_mask=mask, use_cache=False
            )
    finally:
        for hook in hooks:
            hook.remove()
    return max(parts), sum(parts)


class _Kernel(torch.autograd.Function):
    """An attention kernel without its computation."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, key: Tensor, value: Tensor) -> Tensor:
        groups = query.shape[1] // value.shape[1]
        output = value.repeat_interleave(groups, 1).transpose(1, 2).contiguous()
        ctx.save_for_backward(query, key, value, output)
        return output


def _fused(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, *_: Any, **rest: Any
) -> tuple[Tensor, None]:
    output: Tensor = _Kernel.apply(query, key, value)
    return output, None
