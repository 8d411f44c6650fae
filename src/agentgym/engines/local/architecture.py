"""Traits: find out whether a model can compute several sequences in one forward pass.

Tokens of several sequences can be packed into one row (:mod:`.attention`) if every
layer attends to all earlier tokens and transformers lets us replace its attention. All
other models take the plain path: one sequence after the other through the model's own
forward pass, with the cache of transformers. A model without weights (on torch's meta
device) is enough to detect this, so a run's plan shows it before loading the model.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import transformers
from torch import Tensor, nn
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AttentionInterface,
    AttentionMaskInterface,
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageTextToText,
    DynamicCache,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.cache_utils import (
    DynamicLayer,
    DynamicSlidingWindowLayer,
    LinearAttentionLayer,
)
from transformers.masking_utils import sdpa_mask
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING as _WITH_IMAGES,
)

from agentgym.engines.local.decoding.kv_cache import CacheShape
from agentgym.errors import ModelError, first_line

_WATCH = "agentgym_watch"
_TOKENS = 4
UNLIMITED = 2**40
"""A number of tokens that is so large that it means no limit."""
_KNOWN = {
    "scaling",
    "layout",
    "dropout",
    "is_causal",
    "position_ids",
    "cache_position",
    "past_key_values",
    "use_cache",
    "output_attentions",
    "output_hidden_states",
    "output_router_logits",
}
"""Arguments of an attention call that do not prevent packing sequences into a row."""
_OBSTACLES = {
    "sliding_window": "sliding-window attention",
    "softcap": "capped attention scores",
    "s_aux": "attention sinks",
}


@dataclass(frozen=True)
class Traits:
    """How a model's layers can be computed.

    Attributes:
        obstacles: Reasons why tokens of several sequences cannot be packed into one
            row; empty if they can.
        cache: Shape of one token's keys and values; None if tokens cannot be packed.
        growing: How many numbers (scalars) each token adds to the cache.
        bounded: How many numbers the cache holds for sliding windows and recurrent
            states. Their size does not grow with the text.
        needs_eager: Whether attention has a feature that torch's
            ``scaled_dot_product_attention`` does not support.
        plain_head: Whether the logits are the output of one linear layer alone.
        continues: Whether the cache accepts several new tokens in one pass.
    """

    obstacles: tuple[str, ...]
    cache: CacheShape | None
    growing: int
    bounded: int
    needs_eager: bool = False
    plain_head: bool = True
    continues: bool = True

    @property
    def is_packed(self) -> bool:
        """Whether tokens of several sequences are packed into one row."""
        return not self.obstacles


def find_class(name: str, source: str) -> Any:
    """Return the class of transformers that loads a model, from its ``config.json``.

    For a model of text and images, the class loads the whole model. Only the text part
    is sampled and trained, but all weights are saved, as in the original folder.
    """
    try:
        config = AutoConfig.from_pretrained(source)
    except OSError:  # missing, or no network
        raise
    except Exception as error:
        reason = first_line(error)
        if "model_type" in reason or "model type" in reason:
            reason = f"it is not in transformers {transformers.__version__}: {reason}"
        raise ModelError(
            f"The architecture of {name!r} cannot be read: {reason} Install a newer "
            "transformers if there is one, or use another model."
        ) from error
    if config.get_text_config() is not config and type(config) in _WITH_IMAGES:
        return AutoModelForImageTextToText
    if type(config) in MODEL_FOR_CAUSAL_LM_MAPPING:
        return AutoModelForCausalLM
    raise ModelError(
        f"The model {name!r} (architecture {config.model_type!r}) does not continue "
        f"text in transformers {transformers.__version__}: it is neither a causal "
        "language model nor one of text and images. Use another model."
    )


def find_traits(name: str, model: PreTrainedModel) -> Traits:
    """Run a model, with or without weights, to detect how its layers are computed."""
    if model.get_decoder() is model or model.get_output_embeddings() is None:
        raise ModelError(
            f"The layers of {name!r} (architecture {model.config.model_type!r}) and "
            "its last one cannot be run apart, which training needs. Use another model."
        )
    cache, calls = _watched(name, model)
    odd = [word for call in calls for word in call.extra]
    obstacles = [_OBSTACLES.get(word, f"attention with {word}") for word in odd]
    growing = bounded = attending = 0
    shapes = set()
    for layer in cache.layers:
        for state in _states(layer):
            bounded += state.numel()
        if isinstance(layer, LinearAttentionLayer):
            obstacles.append("layers with a state (linear attention or convolutions)")
        if not isinstance(layer, DynamicLayer):
            continue
        keys, values = layer.keys, layer.values
        if keys is None or values is None or not keys.numel():
            continue
        attending += 1
        token = (keys.numel() + values.numel()) // _TOKENS
        if isinstance(layer, DynamicSlidingWindowLayer):
            obstacles.append(_OBSTACLES["sliding_window"])
            bounded += layer.sliding_window * token
        else:
            growing += token
        if keys.shape != values.shape:
            obstacles.append("keys and values of different shapes")
        elif any(keys.shape != call.keys for call in calls) and not obstacles:
            obstacles.append("a cache that is not its keys and values")
        elif type(layer) is not DynamicLayer and not obstacles:
            obstacles.append(f"a cache of {type(layer).__name__}")
        shapes.add((keys.shape[1], keys.shape[3], keys.dtype))
    if not growing + bounded:
        raise ModelError(
            f"The model {name!r} (architecture {model.config.model_type!r}) keeps "
            "nothing in a cache of transformers, so this engine cannot sample from it. "
            "Use another model."
        )
    if len(shapes) > 1:
        obstacles.append("layers of different shapes")
    if len(calls) < attending or not all(call.has_layout for call in calls):
        obstacles.append("attention of its own")
    shape = None
    if not obstacles:
        heads, width, dtype = shapes.pop()
        shape = CacheShape(len(cache.layers), heads, width, dtype)
    return Traits(
        obstacles=tuple(dict.fromkeys(obstacles)),
        cache=shape,
        growing=growing,
        bounded=bounded,
        needs_eager=bool(set(odd) - {"sliding_window"}),
    )


def longest_text(config: PreTrainedConfig) -> int:
    """Return the longest text, in tokens, for which cached keys are correct.

    This is the model's longest length, except for rotary positions of type
    ``longrope``: they all change when the text grows beyond the model's original
    length, so that length is the limit.
    """
    text = config.get_text_config()
    longest = int(getattr(text, "max_position_embeddings", 0) or UNLIMITED)
    found = text.to_dict().get("rope_parameters") or {}
    for settings in (found, *found.values()):  # some models have one per kind of layer
        if isinstance(settings, dict) and settings.get("rope_type") == "longrope":
            original = settings.get("original_max_position_embeddings")
            longest = min(longest, int(original or longest))
    return longest


class _Call(NamedTuple):
    """Properties of one attention call.

    Attributes:
        has_layout: Whether the model passed the argument ``layout`` on to the attention
            function.
        keys: Shape of the keys.
        extra: Names of unknown arguments that were set, e.g. ``sliding_window``. With
            them, tokens cannot be packed.
    """

    has_layout: bool
    keys: torch.Size
    extra: list[str]


def _watched(name: str, model: PreTrainedModel) -> tuple[DynamicCache, list[_Call]]:
    """Run a model on a few tokens; return the cache and the attention calls."""
    calls: list[_Call] = []

    def watch(
        module: nn.Module,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        attention_mask: Tensor | None,
        **rest: Any,
    ) -> tuple[Tensor, None]:
        extra = [word for word in rest.keys() - _KNOWN if _is_set(rest[word])]
        calls.append(_Call(rest.get("layout") is not None, key.shape, sorted(extra)))
        groups = query.shape[1] // value.shape[1]
        return value.repeat_interleave(groups, 1).transpose(1, 2).contiguous(), None

    AttentionInterface.register(_WATCH, watch)
    AttentionMaskInterface.register(_WATCH, sdpa_mask)
    before = model.config._attn_implementation
    model.set_attn_implementation(_WATCH)
    ids = torch.zeros(1, _TOKENS, dtype=torch.long, device=model.device)
    cache = DynamicCache(config=model.config)
    try:
        with torch.inference_mode():
            output = model.get_decoder()(
                input_ids=ids,
                position_ids=torch.arange(_TOKENS, device=model.device)[None],
                attention_mask=torch.zeros(1, 1, 1, 1, device=model.device),
                past_key_values=cache,
                use_cache=True,
                layout=object(),
            )
            assert output.last_hidden_state is not None, "its layers are not apart"
    except Exception as error:
        reason = first_line(error)
        raise ModelError(
            f"The model {name!r} (architecture {model.config.model_type!r}) cannot be "
            f"run on tokens with a cache of transformers: {reason} Use another model."
        ) from error
    finally:
        model.set_attn_implementation(before)
    return cache, calls


def _is_set(value: object) -> bool:
    return value is not None and value is not False


def _states(layer: Any) -> Iterator[Tensor]:
    """Yield a cache layer's recurrent and convolution states, which do not grow."""
    if isinstance(layer, LinearAttentionLayer):
        for held in (layer.conv_states, layer.recurrent_states):
            states = held.values() if isinstance(held, dict) else held or ()
            yield from (state for state in states if isinstance(state, Tensor))
