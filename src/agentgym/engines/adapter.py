"""LoRA: an adapter, made or read, and the weights that it makes of those below it."""

import copy
from collections.abc import Iterator
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

if TYPE_CHECKING:
    from peft import PeftModel

_FUSED_OUTPUT = {"falcon_h1", "falcon_mamba", "mamba", "mamba2", "nemotron_h"}
"""Kernels of these read the weights of ``out_proj`` themselves; peft refuses it."""


def adapt(
    causal: PreTrainedModel, source: str | None, rank: int | None, seed: int
) -> "PeftModel | None":
    """Inject an adapter into a model, whose own weights are then no longer trained.

    Args:
        causal: The model; the linear layers that :func:`adapted_layers` names get one.
        source: A folder with the adapter; None for a new one.
        rank: Of a new one, None or 0 for none; None also if nothing is to be trained.
        seed: Of a new one's first weights.
    """
    if source is None and not rank:
        return None
    from peft import LoraConfig, PeftModel, get_peft_model  # takes seconds

    if source is not None:
        return PeftModel.from_pretrained(causal, source, is_trainable=rank is not None)
    assert rank is not None
    config = LoraConfig(
        r=rank,
        lora_alpha=2 * rank,
        target_modules=_shortest(causal, list(adapted_layers(causal))),
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        adapted = get_peft_model(causal, config)
    assert isinstance(adapted, PeftModel)
    return adapted


def adapted_layers(causal: PreTrainedModel) -> dict[str, nn.Module]:
    """Return the layers that get an adapter, by name.

    These are the linear layers of the text part but the last. In a mixture of experts
    those of the perceptrons are left out: the experts are one parameter, whose adapter
    would be as large as several models, and servers take none.
    """
    decoder = causal.get_decoder()
    prefix = next(name for name, module in causal.named_modules() if module is decoder)
    skipped = {_parent(name) for name in _experts(decoder)}
    blocks = {name.rsplit(".", 1)[-1] for name in skipped if "layers" in name}
    blocks = {block for block in blocks if not block.isdigit()}
    fused = causal.config.get_text_config().model_type in _FUSED_OUTPUT
    return {
        f"{prefix}.{name}": module
        for name, module in decoder.named_modules()
        if isinstance(module, nn.Linear | Conv1D)
        and not blocks & set(name.split("."))
        and not (fused and name.endswith(".out_proj"))
    }


def has_experts(causal: PreTrainedModel) -> bool:
    """Return whether the model is a mixture of experts, which an adapter leaves out."""
    return bool(_experts(causal.get_decoder()))


def _experts(decoder: nn.Module) -> list[str]:
    """Return the names of modules that hold the matrices of several experts in one."""
    return [
        name
        for name, module in decoder.named_modules()
        if not isinstance(module, nn.modules.conv._ConvNd)
        and any(
            p.dim() == 3 and 1 not in p.shape
            for p in module._parameters.values()
            if p is not None
        )
    ]


def _parent(name: str) -> str:
    return name.rpartition(".")[0]


def _shortest(causal: PreTrainedModel, names: list[str]) -> list[str]:
    """Return the last parts of names where no other module shares one, else names."""
    last = {name.rpartition(".")[2] for name in names}
    others = {name for name, _ in causal.named_modules()}.difference(names)
    if any(name.rpartition(".")[2] in last for name in others):
        return names
    return sorted(last)


class SamplingCopy:
    """A model to sample from: another one without the modules of its adapter.

    The adapter costs two small products and five other operations in each linear layer
    of each decoding step. In float32 it is merged into copies of the weights, and costs
    none. In bfloat16 a sum of both would be rounded, and lose the first updates: they
    are smaller than the last bit of the weights. So the layers keep their own weights,
    and add the adapter's product, as the learner does (:func:`compute_in_half`).
    All is made again at each :meth:`refresh`, so that nothing has to be taken out again
    and rounding cannot add up; all other weights are the other model's own.

    Attributes:
        model: The model without adapter; has the weights of the last refresh.
    """

    def __init__(self, source: PreTrainedModel) -> None:
        held = {id(t): t for t in chain(source.parameters(), source.buffers())}
        self.model = copy.deepcopy(source, held)
        self._layers: list[_MergedLinear | _LowRankLinear] = []
        for name, layer in mergeable(source).items():
            made = _LowRankLinear(layer) if _is_half(layer) else _MergedLinear(layer)
            self.model.set_submodule(name, made)
            self._layers.append(made)
        self.refresh()

    @torch.no_grad()
    def refresh(self) -> None:
        """Take over the adapter as it is now."""
        for layer in self._layers:
            layer.refresh()


class _MergedLinear(nn.Linear):
    """Has a copy of a layer's weights, with the adapter added."""

    def __init__(self, layer: Any) -> None:
        base = layer.get_base_layer()
        super().__init__(base.in_features, base.out_features, False, device="meta")
        weight = torch.empty_like(base.weight, requires_grad=False)
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.bias = base.bias
        self._adapted = [layer]  # in a list: it is not a part of this module

    def refresh(self) -> None:
        self.weight.copy_(_merged(self._adapted[0]))


class _LowRankLinear(nn.Module):
    """Has a layer's own weights, and adds its adapter's product in their precision."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        base = layer.get_base_layer()
        self.weight, self.bias = base.weight, base.bias
        self._adapted = [layer]
        self.factors = nn.ParameterList()
        self._pairs: list[tuple[Tensor, Tensor]] = []
        """The same tensors: a ParameterList is slow to walk in each decoding step."""

    def refresh(self) -> None:
        factors = _factors(self._adapted[0], self.weight.dtype)
        # The second one lies in memory as the product reads it, which few rows notice.
        self._pairs = [(down, up.t().contiguous().t()) for down, up in factors]
        self.factors = nn.ParameterList(
            nn.Parameter(factor, requires_grad=False)
            for factor in chain.from_iterable(self._pairs)
        )

    def forward(self, states: Tensor) -> Tensor:
        made = functional.linear(states, self.weight, self.bias)
        for down, up in self._pairs:
            made = _added(made, states, down, up)
        return made


def compute_in_half(model: PreTrainedModel) -> None:
    """Let an adapter compute in bfloat16 where the layer below it does.

    Its weights stay in float32, as do their gradients' sums and the optimizer: a step
    of one part in ten thousand would be lost in bfloat16. peft would turn each layer's
    input into float32 instead, and multiply that.
    """
    for layer in mergeable(model).values():
        if _is_half(layer):
            layer.forward = partial(_forward_in_half, layer)


def _forward_in_half(layer: Any, states: Tensor) -> Tensor:
    made: Tensor = layer.base_layer(states)
    if layer.disable_adapters:
        return made
    for down, up in _factors(layer, states.dtype):
        made = _added(made, states, down, up)
    return made


def _added(made: Tensor, states: Tensor, down: Tensor, up: Tensor) -> Tensor:
    """Return a layer's output with an adapter's product added."""
    low = functional.linear(states.flatten(0, -2), down)
    return torch.addmm(made.flatten(0, -2), low, up.t()).view_as(made)


def _factors(layer: Any, dtype: torch.dtype) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield both matrices of each adapter of a layer, the second one scaled."""
    for name in layer.active_adapters:
        if name in layer.lora_A:
            up = layer.lora_B[name].weight * layer.scaling[name]
            yield layer.lora_A[name].weight.to(dtype), up.to(dtype)


def _is_half(layer: Any) -> bool:
    return bool(layer.get_base_layer().weight.dtype is torch.bfloat16)


@torch.no_grad()
def merge(model: PreTrainedModel) -> None:
    """Take the adapter's modules out of a model that is not trained, for good.

    As in :class:`SamplingCopy`: merged in float32, next to the weights in bfloat16.
    """
    for name, layer in mergeable(model).items():
        base = layer.get_base_layer()
        if _is_half(layer):
            base = _LowRankLinear(layer)
            base.refresh()
            base._adapted.clear()
        else:
            base.weight.copy_(_merged(layer))
        model.set_submodule(name, base)


@torch.no_grad()
def plain_weights(model: PreTrainedModel) -> Iterator[tuple[str, Tensor]]:
    """Yield a model's weights by the names that they have without an adapter.

    An adapter's product is added to the weights below it, in float32.
    """
    adapted = mergeable(model)
    for name, layer in adapted.items():
        yield f"{name}.weight", _merged(layer, torch.float32)
        if (bias := layer.get_base_layer().bias) is not None:
            yield f"{name}.bias", bias
    for name, parameter in model.named_parameters():
        if not any(name.startswith(f"{layer}.") for layer in adapted):
            yield name, parameter


def mergeable(model: PreTrainedModel) -> dict[str, Any]:
    """Return the linear layers whose adapter is a product added to their weights."""
    from peft.tuners.lora import Linear

    return {
        name: layer
        for name, layer in model.named_modules()
        if type(layer) is Linear
        and type(layer.get_base_layer()) is nn.Linear
        and not layer.lora_variant
        and not layer.fan_in_fan_out
        and not any(layer.lora_bias.values())
    }


def _merged(layer: Any, dtype: torch.dtype | None = None) -> Tensor:
    """Return a layer's weights with its adapter's added, in their type or another."""
    total: Tensor = layer.get_base_layer().weight
    total = total if dtype is None else total.to(dtype)
    for down, up in _factors(layer, total.dtype):
        total = torch.addmm(total, up, down)
    return total
