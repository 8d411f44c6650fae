"""LoRA: an adapter, made or read, and the weights that it makes of those below it."""

import copy
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
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


class Merged:
    """A model to sample from: another one with its adapter merged into its weights.

    The adapter costs two small products and five other operations in each linear layer
    of each decoding step; merged it costs none. Merged weights are copies, made again
    from the weights below at each :meth:`refresh`, so that nothing has to be taken out
    again and rounding cannot add up; all other weights are the other model's own.

    Attributes:
        model: The model without adapter; has the weights of the last refresh.
    """

    def __init__(self, source: PreTrainedModel) -> None:
        held = {id(t): t for t in chain(source.parameters(), source.buffers())}
        self.model = copy.deepcopy(source, held)
        self._pairs: list[tuple[Any, nn.Linear]] = []
        for name, layer in mergeable(source).items():
            base = layer.get_base_layer()
            plain = nn.Linear(
                base.in_features, base.out_features, bias=False, device="meta"
            )
            weight = torch.empty_like(base.weight, requires_grad=False)
            plain.weight = nn.Parameter(weight, requires_grad=False)
            plain.bias = base.bias
            self.model.set_submodule(name, plain)
            self._pairs.append((layer, plain))
        self.refresh()

    @torch.no_grad()
    def refresh(self) -> None:
        """Merge the adapter as it is now."""
        for layer, plain in self._pairs:
            plain.weight.copy_(_merged(layer))


@torch.no_grad()
def merge(model: PreTrainedModel) -> None:
    """Merge the adapter into the model's own weights, for good."""
    for name, layer in mergeable(model).items():
        base = layer.get_base_layer()
        base.weight.copy_(_merged(layer))
        model.set_submodule(name, base)


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


def _merged(layer: Any) -> Tensor:
    """Return weights with the adapter's, added up in float32."""
    total: Tensor = layer.get_base_layer().weight.float()
    for name in layer.active_adapters:
        total = total + layer.get_delta_weight(name).float()
    return total
