"""Loads a policy: weights, tokenizer and what the engine must know of both."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import gettempdir
from typing import TYPE_CHECKING

import torch
import transformers
from safetensors import SafetensorError
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DynamicCache,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.cache_utils import DynamicLayer
from transformers.modeling_layers import GradientCheckpointingLayer

from agentgym.core.config import Precision
from agentgym.core.files import parse_json
from agentgym.core.formats.settings import TemplateSettings
from agentgym.engines.adapter import adapt, merge, mergeable
from agentgym.engines.local import attention
from agentgym.engines.local.attention import Layout
from agentgym.engines.local.decoding.kv_cache import CacheShape
from agentgym.engines.local.prefix_tree import TreeLayout
from agentgym.engines.memory import (
    CACHE_BYTES,
    RECOMPUTED_PARAMETERS,
    SMALL_PARAMETERS,
)
from agentgym.engines.tokens.chat_tokens import ChatTokens
from agentgym.errors import GPUNotAvailableError, ModelError
from agentgym.models.chat_template import ChatTemplate
from agentgym.models.folder import ADAPTER_FILE, model_source
from agentgym.models.template import template_of

if TYPE_CHECKING:
    from peft import PeftModel

_LEAST_TOKENS = 512
"""With room for fewer, hardly a prompt fits."""
_TREE_ERROR = 0.1
"""Far more than rounding, and far less than attention to the wrong tokens makes."""
_BATCH_DEPENDENT = ("dynamic", "longrope")
_ADVICE = "Use a Llama- or Qwen-like model."


@dataclass(frozen=True)
class LoadedModel:
    """A causal language model that can call tools.

    Attributes:
        name: What the user asked for.
        model: The model; with LoRA its adapters are injected in place.
        adapter: The same model as peft sees it, None without LoRA.
        tokenizer: Its tokenizer.
        template: Its chat template, and the form of its tool calls.
        device: Where it is.
        cores: How many threads torch has for it.
        context: Most tokens of prompt and response that the model and memory hold.
        stop_ids: Tokens that end a response.
        cache_shape: Of its KV cache.
        cache_tokens: How many tokens of running responses its memory can hold.
        merges: Whether it is sampled from with its adapter merged, in weights of
            their own; on a GPU that may not hold them it is not.
        recomputed: Layers whose activations are not kept for the backward pass.
    """

    name: str
    model: PreTrainedModel
    adapter: "PeftModel | None"
    tokenizer: PreTrainedTokenizerBase
    template: ChatTemplate
    device: torch.device
    cores: int
    context: int
    stop_ids: frozenset[int]
    cache_shape: CacheShape
    cache_tokens: int
    merges: bool = True
    recomputed: tuple[nn.Module, ...] = ()

    def chat_tokens(self) -> ChatTokens:
        """Return what lies between chat messages and this model's tokens."""
        return ChatTokens(
            self.name, self.tokenizer, self.template, self.stop_ids, self.context
        )

    @property
    def is_small(self) -> bool:
        """Whether its matrices are too small for kernels of several threads."""
        return (
            self.model.num_parameters() < SMALL_PARAMETERS and self.device.type == "cpu"
        )

    @property
    def threads(self) -> tuple[int, int]:
        """How many compute parts side by side, and how many a kernel has in each."""
        return (self.cores, 1) if self.is_small else (1, self.cores)

    @property
    def vocabulary(self) -> int:
        """How many tokens there are."""
        return int(self.model.config.get_text_config().vocab_size)

    def logits(
        self, ids: Tensor, positions: Tensor, layout: Layout, at: Tensor | None = None
    ) -> Tensor:
        """Return the logits after packed tokens, (tokens, vocabulary).

        Args:
            ids: Of the tokens, (tokens,).
            positions: Of each in its sequence, same shape.
            layout: What each attends to.
            at: Indices of the tokens that count; None for all.
        """
        states = self.states(ids, positions, layout)
        return self.predict(states if at is None else states.index_select(0, at))

    def predict(self, states: Tensor) -> Tensor:
        """Return the logits of the last layer's output, (tokens, vocabulary)."""
        head = self.model.get_output_embeddings()
        assert head is not None
        logits: Tensor = head(states)
        return logits

    def states(self, ids: Tensor, positions: Tensor, layout: Layout) -> Tensor:
        """Return the last layer's output for packed tokens, (tokens, width)."""
        return _packed_states(self.model, ids, positions, layout)

    @contextmanager
    def recomputing(self) -> Iterator[None]:
        """Keep of a layer in ``recomputed`` its input alone; backward computes it anew.

        Activation checkpointing (Chen et al. 2016, https://arxiv.org/abs/1604.06174):
        a third more arithmetic, and the activations of one layer instead of all.
        """
        for layer in self.recomputed:
            layer.forward = partial(
                checkpoint, layer.forward, use_reentrant=False, preserve_rng_state=False
            )
        try:
            yield
        finally:
            for layer in self.recomputed:
                del layer.forward

    def trained_parameters(self) -> list[tuple[str, nn.Parameter]]:
        """Return the parameters that training changes, by name."""
        return [(n, p) for n, p in self.model.named_parameters() if p.requires_grad]


def load_model(
    model: str,
    *,
    device: str,
    rank: int | None,
    seed: int,
    precision: Precision = "auto",
    recompute: bool | None = None,
    template: TemplateSettings | None = None,
) -> LoadedModel:
    """Load a policy by name, folder or Hugging Face id.

    Args:
        model: ``nano``, a folder (of a model, or of a peft adapter) or an id.
        device: ``cpu`` or ``cuda``.
        rank: Of a new LoRA adapter to train; 0 trains all weights (or the adapter,
            if the folder holds one); None loads for inference alone.
        seed: Of the new adapter's first weights.
        precision: Of weights below an adapter: ``bf16``, ``float32``, or ``auto``,
            which is bfloat16 on a GPU that has it. All others are float32.
        recompute: Whether layers are computed anew in the backward pass; None if the
            model is large.
        template: How its chat template is used; None: as its folder says.

    Raises:
        ModelError: It cannot be loaded, cannot be trained to call tools, or leaves
            no memory for responses.
        GPUNotAvailableError: torch sees no CUDA device.
    """
    _remove_empty_caches()
    if device == "cuda" and not torch.cuda.is_available():
        raise GPUNotAvailableError(
            "A GPU is there, but this torch cannot use it (torch.cuda.is_available() "
            "is false). Install a CUDA build of torch, or use --gpu none."
        )
    source = model_source(model)
    given = (Path(source) / ADAPTER_FILE).is_file()
    dtype = _dtype(precision, device) if given or rank else torch.float32
    with quiet():
        tokenizer, causal = _read(model, source, given=given, dtype=dtype)
    used = template_of(source, template)
    tokenizer.chat_template = used.chat_template or tokenizer.chat_template
    chat_template = ChatTemplate(model, tokenizer, used)
    adapter = adapt(causal, source if given else None, rank, seed)
    if adapter is not None:
        causal = adapter.get_base_model()  # type: ignore[assignment]
    causal.to(device).eval()  # type: ignore[arg-type]
    if rank is None:
        causal.requires_grad_(False)
        if adapter is not None:
            merge(causal)
            adapter = None
    _check_positions(model, causal)
    shape = _examine(model, causal)
    merged = 0 if adapter is None else _mergeable_bytes(causal)
    merges = _free_bytes(causal) >= 2 * merged
    held = _cache_tokens(model, causal, shape, merged if merges else 0)
    longest = int(causal.config.get_text_config().max_position_embeddings)
    return LoadedModel(
        name=model,
        model=causal,
        adapter=adapter,
        tokenizer=tokenizer,
        template=chat_template,
        device=torch.device(device),
        cores=torch.get_num_threads(),
        context=int(min(longest, tokenizer.model_max_length, held)),
        stop_ids=_stop_ids(model, causal, tokenizer),
        cache_shape=shape,
        cache_tokens=held,
        merges=merges,
        recomputed=_recomputed(model, causal, recompute) if rank is not None else (),
    )


def _remove_empty_caches() -> None:
    """Remove what importing transformers leaves in TMPDIR: nothing is compiled here."""
    for folder in Path(gettempdir()).glob("torchinductor_*"):
        with suppress(OSError):  # it is in use, or another user's
            folder.rmdir()


def _packed_states(
    model: PreTrainedModel, ids: Tensor, positions: Tensor, layout: Layout
) -> Tensor:
    states: Tensor = model.get_decoder()(
        input_ids=ids[None],
        position_ids=positions[None],
        # Not looked at, but transformers would make one if it were given none.
        attention_mask=torch.zeros(1, 1, 1, 1, device=ids.device),
        use_cache=False,
        layout=layout,
    ).last_hidden_state
    return states[0]


def _read(
    model: str, source: str, *, given: bool, dtype: torch.dtype
) -> tuple[PreTrainedTokenizerBase, PreTrainedModel]:
    """Read tokenizer and base weights, those below an adapter if one is given."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(source)
        if given:
            settings = parse_json((Path(source) / ADAPTER_FILE).read_text())
            source = model_source(str(settings["base_model_name_or_path"]))
        causal = AutoModelForCausalLM.from_pretrained(
            source, dtype=dtype, attn_implementation="sdpa"
        )
        causal.set_attn_implementation(attention.register())
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        reason = str(error).strip().split("\n")[0]
        raise ModelError(
            f"The model {model!r} cannot be loaded: {reason} Without a network, give "
            "a folder that holds the model, or use --model nano."
        ) from error
    return tokenizer, causal


def _dtype(precision: Precision, device: str) -> torch.dtype:
    """Return that of weights below an adapter, which itself is in float32."""
    if precision == "auto":
        supported = device == "cuda" and torch.cuda.is_bf16_supported(
            including_emulation=False
        )
        return torch.bfloat16 if supported else torch.float32
    return torch.bfloat16 if precision == "bf16" else torch.float32


def _recomputed(
    model: str, causal: PreTrainedModel, wanted: bool | None
) -> tuple[nn.Module, ...]:
    if wanted is None:
        wanted = causal.num_parameters() > RECOMPUTED_PARAMETERS
    if not wanted:
        return ()
    found = [m for m in causal.modules() if isinstance(m, GradientCheckpointingLayer)]
    if not found:
        raise ModelError(
            f"The layers of {model!r} cannot be computed anew in the backward pass. "
            "Set gradient_checkpointing to false."
        )
    return tuple(found)


def _mergeable_bytes(causal: PreTrainedModel) -> int:
    weights = [m.get_base_layer().weight for m in mergeable(causal).values()]
    return sum(weight.nbytes for weight in weights)


def _free_bytes(causal: PreTrainedModel) -> int:
    """Return what a GPU has left; a CPU's memory is looked at before loading."""
    if causal.device.type != "cuda":
        return sys.maxsize
    torch.cuda.empty_cache()
    return torch.cuda.mem_get_info(causal.device)[0]


def _cache_tokens(
    model: str, causal: PreTrainedModel, shape: CacheShape, merged: int
) -> int:
    """Return how many tokens' keys and values the running responses may take.

    On a GPU a quarter of what is free beside the weights, ``merged`` bytes of which are
    yet to come: training needs the most.
    """
    budget = CACHE_BYTES
    if causal.device.type == "cuda":
        budget = (_free_bytes(causal) - merged) // 4
    size = 2 * shape.layers * shape.heads * shape.head_dim * shape.dtype.itemsize
    tokens = budget // size
    if tokens < _LEAST_TOKENS:
        raise ModelError(
            f"The keys and values of {model!r} take {size:,} bytes a token, so that "
            f"the {budget / 2**30:.2f} GiB there are for them hold only {tokens} "
            "tokens. Free memory on the GPU, or use a smaller model."
        )
    return tokens


def _stop_ids(
    model: str, causal: PreTrainedModel, tokenizer: PreTrainedTokenizerBase
) -> frozenset[int]:
    """Return the end tokens of the tokenizer and of the generation settings."""
    settings = causal.generation_config
    more = None if settings is None else settings.eos_token_id
    found = [tokenizer.eos_token_id, *(more if isinstance(more, list) else [more])]
    ids = frozenset(int(i) for i in found if i is not None)
    if not ids:
        raise ModelError(f"The tokenizer of {model!r} names no end token (eos_token).")
    return ids


def _check_positions(model: str, causal: PreTrainedModel) -> None:
    """Refuse rotary frequencies with which a row's logits depend on its neighbours."""
    found = causal.config.get_text_config().to_dict().get("rope_parameters") or {}
    for settings in (found, *found.values()):  # some have them per kind of layer
        kind = settings.get("rope_type") if isinstance(settings, dict) else None
        if kind in _BATCH_DEPENDENT:
            raise ModelError(
                f"The model {model!r} has rotary positions of type {kind!r}, which "
                "change with the longest text of a batch. That is not supported; use a "
                "Llama- or Qwen-like model."
            )


@torch.inference_mode()
def _examine(model: str, causal: PreTrainedModel) -> CacheShape:
    """Try a model out on two short sequences, alone and packed into a tree."""
    rows = torch.tensor([[0, 1, 2, 3], [0, 1, 4, 5]], device=causal.device)
    cache = DynamicCache(config=causal.config)
    alone = causal.get_decoder()(
        input_ids=rows, past_key_values=cache, use_cache=True
    ).last_hidden_state
    shape = _cache_shape(model, cache)
    head = causal.get_output_embeddings()
    logits = causal(input_ids=rows).logits
    if head is None or not torch.allclose(
        head(alone).float(), logits.float(), rtol=1e-2, atol=1e-2
    ):
        raise ModelError(
            f"The logits of {model!r} are more than one linear layer (scaled or "
            f"capped), which is not supported. {_ADVICE}"
        )
    tree = torch.tensor([[0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 2, 3]], device=causal.device)
    layout = TreeLayout([2, 2, 2], [4, 2], [[0, 1, 2], [0, 1, 3]])
    packed = _packed_states(causal, tree[0], tree[1], layout)
    expected = torch.cat([alone[0], alone[1, 2:]]).float()
    error = (packed.float() - expected).norm() / expected.norm()
    if not error < _TREE_ERROR:
        raise ModelError(
            f"The attention of {model!r} cannot be told which tokens see each other, "
            f"so it cannot be trained here. {_ADVICE}"
        )
    return shape


def _cache_shape(model: str, cache: DynamicCache) -> CacheShape:
    shapes = set()
    for layer in cache.layers:
        if type(layer) is not DynamicLayer or layer.keys is None:
            raise ModelError(
                f"The model {model!r} has layers of type {type(layer).__name__}; only "
                f"full attention is supported. {_ADVICE}"
            )
        if layer.values is None or layer.values.shape != layer.keys.shape:
            raise ModelError(
                f"The keys and values of {model!r} differ in shape, which is not "
                f"supported. {_ADVICE}"
            )
        _, heads, _, width = layer.keys.shape
        shapes.add((heads, width, layer.keys.dtype))
    if len(shapes) != 1:
        raise ModelError(f"The layers of {model!r} differ in shape: {sorted(shapes)}.")
    heads, width, dtype = shapes.pop()
    return CacheShape(len(cache.layers), heads, width, dtype)


@contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers' progress bars and advice off the terminal."""
    logging = transformers.logging
    level = logging.get_verbosity()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        logging.enable_progress_bar()
