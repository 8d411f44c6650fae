"""LoRA adapters: create, load and merge them, and sample with them."""

import copy
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import PreTrainedModel
from transformers.pytorch_utils import Conv1D

from agentgym.errors import UnsupportedError
from agentgym.models.folder import adapter_folders

if TYPE_CHECKING:
    from peft import PeftModel

_FUSED_OUTPUT = {"falcon_h1", "falcon_mamba", "mamba", "mamba2", "nemotron_h"}
"""Architectures whose kernels read the weights of ``out_proj`` directly. For them, peft
refuses an adapter on ``out_proj``."""


def adapt(
    causal: PreTrainedModel,
    source: str | None,
    rank: int | None,
    seed: int,
    roles: Sequence[str] = (),
) -> "PeftModel | None":
    """Add an adapter, or one for each role, and freeze the model's own weights.

    Args:
        causal: The model. A new adapter is added to its :func:`adapted_layers`.
        source: A folder with saved adapters; None creates new ones.
        rank: Rank of a new adapter. With 0, only the adapters of ``source`` are
            trained. With None, these are loaded but not trained.
        seed: Seed of a new adapter's initial weights.
        roles: Agents of a team that each get their own adapter; if empty, the model
            gets one adapter.

    Returns:
        The model with its adapters; None if no adapter was loaded or created.

    Raises:
        UnsupportedError: ``roles`` is given, but some layer can have only one
            adapter.
    """
    if source is None and not rank:
        return None
    from peft import LoraConfig, PeftModel, get_peft_model  # takes seconds

    first, *others = names_of(roles) or ["default"]
    is_trainable = rank is not None
    if source is not None:
        held, *more = map(str, adapter_folders(Path(source)).values())
        made = PeftModel.from_pretrained(causal, held, first, is_trainable)
        for folder, name in zip(more, others, strict=True):
            made.load_adapter(folder, name, is_trainable)
        _require_choice(causal, roles)
        return made
    assert rank is not None
    config = LoraConfig(
        r=rank,
        lora_alpha=2 * rank,
        target_modules=_shortest(causal, list(adapted_layers(causal))),
        task_type="CAUSAL_LM",
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        adapted = get_peft_model(causal, config, first)
        assert isinstance(adapted, PeftModel)
        for name in others:
            adapted.add_adapter(name, copy.copy(config))
    _require_choice(causal, roles)
    return adapted


def names_of(roles: Sequence[str]) -> list[str]:
    """Return a name for each role's adapter; the adapter's folder has the same name."""
    return [f"r{n}_{re.sub(r'\W+', '_', role)}" for n, role in enumerate(roles, 1)]


def _require_choice(causal: PreTrainedModel, roles: Sequence[str]) -> None:
    """Raise UnsupportedError if an adapted layer cannot hold one adapter per role."""
    from peft.tuners.lora import LoraLayer

    count = sum(isinstance(module, LoraLayer) for module in causal.modules())
    if roles and count != len(mergeable(causal)):
        kind = causal.config.model_type
        raise UnsupportedError(
            f"role_adapters with a model of the architecture {kind!r}: some of its "
            "layers can have one adapter only. Leave role_adapters out, or choose "
            "another --model."
        )


def adapted_layers(causal: PreTrainedModel) -> dict[str, nn.Module]:
    """Return the layers that get an adapter, by name.

    These are the linear layers of the text part, without the output head. In a mixture
    of experts, the layers of the expert blocks get no adapter: all experts are one
    parameter, its adapter would be huge, and servers do not accept it.
    """
    decoder = causal.get_decoder()
    prefix = next(name for name, module in causal.named_modules() if module is decoder)
    skipped = {name.rpartition(".")[0] for name in _experts(decoder)}
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
    """Return whether the model is a mixture of experts; experts get no adapter."""
    return bool(_experts(causal.get_decoder()))


def _experts(decoder: nn.Module) -> list[str]:
    """Return the names of modules that have all experts in one 3-dimensional tensor."""
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


def _shortest(causal: PreTrainedModel, names: list[str]) -> list[str]:
    """Shorten layer names to their last parts, e.g. ``layers.0.q_proj`` to ``q_proj``.

    If any other module of the model has the same last part, return the full names.
    """
    last = {name.rpartition(".")[2] for name in names}
    others = {name for name, _ in causal.named_modules()}.difference(names)
    if any(name.rpartition(".")[2] in last for name in others):
        return names
    return sorted(last)


class SamplingCopy:
    """A copy of a model that samples faster than the model with peft's adapter.

    In each decoding step, peft's adapter costs two small matrix products and five other
    operations per linear layer. In float32 the adapter is merged into copies of the
    weights and costs nothing. In bfloat16, merging would round away the first updates:
    they are smaller than the last bit of the weights. So bfloat16 layers keep their
    weights and add the adapter's output, as in training (:func:`compute_in_half`). Each
    :meth:`refresh` merges again from the original weights, so that rounding does not
    accumulate. All other weights are shared with the original model.

    Args:
        source: The model with its adapters.
        adapters: Names of the adapters, if each role has its own. Then none is merged:
            :meth:`choose` sets the adapter of each token, so that one batch can have
            requests of several roles.
    """

    def __init__(self, source: PreTrainedModel, adapters: Sequence[str] = ()) -> None:
        held = {id(t): t for t in chain(source.parameters(), source.buffers())}
        self.model = copy.deepcopy(source, held)
        self._choice = _Choice(adapters)
        self._layers: list[_MergedLinear | _LowRankLinear | _ChosenLinear] = []
        for name, layer in mergeable(source).items():
            made: _MergedLinear | _LowRankLinear | _ChosenLinear
            if adapters:
                made = _ChosenLinear(layer, self._choice)
            elif _is_half(layer):
                made = _LowRankLinear(layer)
            else:
                made = _MergedLinear(layer)
            self.model.set_submodule(name, made)
            self._layers.append(made)
        self.refresh()

    @torch.no_grad()
    def refresh(self) -> None:
        """Update the copy with the adapter's current weights."""
        for layer in self._layers:
            layer.refresh()

    def choose(self, numbers: Tensor) -> None:
        """Set the index of each token's adapter for the next passes; -1 for none."""
        assert self._choice.owners is not None
        self._choice.mask = numbers[:, None] == self._choice.owners


class _Choice:
    """The choice of an adapter for each token; all layers read the same object.

    An adapter of rank r has r low-rank dimensions. In each layer, the dimensions of all
    adapters are joined: first those of adapter 0, then those of adapter 1, and so on.

    Attributes:
        owners: For each joined dimension, the index of its adapter; None before the
            first refresh.
        mask: True where a dimension belongs to the token's adapter, (tokens,
            dimensions); None before the first choice.
    """

    def __init__(self, adapters: Sequence[str]) -> None:
        self.adapters = adapters
        self.owners: Tensor | None = None
        self.mask: Tensor | None = None


class _MergedLinear(nn.Linear):
    """A linear layer whose weights are the sum of a layer's weights and its adapter."""

    def __init__(self, layer: Any) -> None:
        base = layer.get_base_layer()
        super().__init__(base.in_features, base.out_features, False, device="meta")
        weight = torch.empty_like(base.weight, requires_grad=False)
        self.weight = nn.Parameter(weight, requires_grad=False)
        self.bias = base.bias
        self._adapted = [layer]  # in a list: not a submodule

    def refresh(self) -> None:
        self.weight.copy_(_merged(self._adapted[0]))


class _LowRankLinear(nn.Module):
    """A layer that shares an adapted layer's weights and adds the adapter's output.

    The adapter's output is computed in the number type of the weights.
    """

    def __init__(self, layer: Any) -> None:
        super().__init__()
        base = layer.get_base_layer()
        self.weight, self.bias = base.weight, base.bias
        self._adapted = [layer]
        self.factors = nn.ParameterList()
        self._pairs: list[tuple[Tensor, Tensor]] = []
        """The tensors of ``factors`` in a list: iterating a ParameterList is slow."""

    def refresh(self) -> None:
        factors = _factors(self._adapted[0], self.weight.dtype)
        # ``up`` is stored in the memory layout that addmm reads.
        self._pairs = [(down, up.t().contiguous().t()) for down, up in factors]
        self.factors = nn.ParameterList(
            nn.Parameter(factor, requires_grad=False)
            for factor in chain.from_iterable(self._pairs)
        )

    def forward(self, states: Tensor) -> Tensor:
        made = functional.linear(states, self.weight, self.bias)
        return _added(made, states, self._pairs)


class _ChosenLinear(nn.Module):
    """A linear layer that adds, for each token, the output of the token's adapter.

    It computes the adapters of all roles together, and masks the outputs that are not
    for the token. So a token's result does not depend on the adapters of other tokens.
    """

    def __init__(self, layer: Any, choice: _Choice) -> None:
        super().__init__()
        base = layer.get_base_layer()
        self.weight, self.bias = base.weight, base.bias
        self._adapted = [layer]
        self._choice = choice

    def refresh(self) -> None:
        layer, choice = self._adapted[0], self._choice
        found = list(_factors(layer, self.weight.dtype, choice.adapters))
        self._down = torch.cat([down for down, _ in found])
        self._up = torch.cat([up for _, up in found], 1).t().contiguous()
        if choice.owners is None:
            sizes = torch.tensor([len(down) for down, _ in found])
            owners = torch.arange(len(found)).repeat_interleave(sizes)
            choice.owners = owners.to(self.weight.device)

    def forward(self, states: Tensor) -> Tensor:
        made = functional.linear(states, self.weight, self.bias)
        low = functional.linear(states.flatten(0, -2), self._down)
        assert self._choice.mask is not None
        low = low * self._choice.mask
        return torch.addmm(made.flatten(0, -2), low, self._up).view_as(made)


def compute_in_half(model: PreTrainedModel) -> None:
    """Compute the adapters of bfloat16 layers in bfloat16.

    The adapter's weights, gradients and optimizer state stay in float32: bfloat16 would
    lose an update of one part in ten thousand. Without this function, peft converts
    each layer's input to float32, which is slower.
    """
    for layer in mergeable(model).values():
        if _is_half(layer):
            layer.forward = partial(_forward_in_half, layer)


def _forward_in_half(layer: Any, states: Tensor) -> Tensor:
    made: Tensor = layer.base_layer(states)
    if layer.disable_adapters:
        return made
    return _added(made, states, _factors(layer, states.dtype))


def _added(
    made: Tensor, states: Tensor, pairs: Iterable[tuple[Tensor, Tensor]]
) -> Tensor:
    """Add the adapters' outputs for ``states`` to the layer's output ``made``."""
    for down, up in pairs:
        low = functional.linear(states.flatten(0, -2), down)
        made = torch.addmm(made.flatten(0, -2), low, up.t()).view_as(made)
    return made


def _factors(
    layer: Any, dtype: torch.dtype, adapters: Sequence[str] | None = None
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield the matrices (down, up) of each adapter of a layer, in ``dtype``."""
    for name in layer.active_adapters if adapters is None else adapters:
        if name in layer.lora_A:
            up = layer.lora_B[name].weight * layer.scaling[name]
            yield layer.lora_A[name].weight.to(dtype), up.to(dtype)


def _is_half(layer: Any) -> bool:
    return bool(layer.get_base_layer().weight.dtype is torch.bfloat16)


@torch.no_grad()
def merge(model: PreTrainedModel) -> None:
    """Merge the adapter into the model itself, which is then for inference only.

    Layers in bfloat16 are not merged: they add the adapter's output, in plain tensors
    (see :class:`SamplingCopy`).
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
    """Yield each weight with the name that it has in a model without adapters.

    The adapter is merged into the weights of its layers; these are float32.
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
    """Return the linear layers whose adapter can be merged into them, by name."""
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
    """Return a layer's weights with its adapter added, in ``dtype`` if it is given."""
    total: Tensor = layer.get_base_layer().weight
    total = total if dtype is None else total.to(dtype)
    for down, up in _factors(layer, total.dtype):
        total = torch.addmm(total, up, down)
    return total
