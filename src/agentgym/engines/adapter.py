"""LoRA: an adapter, made or read, and the weights that it makes of those below it."""

import copy
from itertools import chain
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

if TYPE_CHECKING:
    from peft import PeftModel


def adapt(
    causal: PreTrainedModel, source: str | None, rank: int | None, seed: int
) -> "PeftModel | None":
    """Inject an adapter into a model, whose own weights are then no longer trained.

    Args:
        causal: The model; its linear layers but the last get an adapter.
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
        r=rank, lora_alpha=2 * rank, target_modules="all-linear", task_type="CAUSAL_LM"
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        adapted = get_peft_model(causal, config)
    assert isinstance(adapted, PeftModel)
    return adapted


class Merged:
    """A model to sample from: another one with its adapter merged into its weights.

    The adapter costs two small products and five other operations in each linear layer
    of each decoding step; merged it costs none. What is merged are copies, made anew
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
