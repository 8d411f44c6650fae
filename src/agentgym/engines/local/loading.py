"""Load a policy: weights, tokenizer, and the properties that the engine needs."""

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import gettempdir

import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from transformers import (
    AutoTokenizer,
    DynamicCache,
    GenerationConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.modeling_layers import GradientCheckpointingLayer

from agentgym.core.config import Precision
from agentgym.core.files import parse_json
from agentgym.core.template_settings import TemplateSettings
from agentgym.engines.adapter import adapt, compute_in_half, merge, mergeable
from agentgym.engines.device import cpu_has_half
from agentgym.engines.local import attention
from agentgym.engines.local.architecture import (
    UNLIMITED,
    Traits,
    find_class,
    find_traits,
    longest_text,
)
from agentgym.engines.local.model import LoadedModel, decoder_states
from agentgym.engines.local.prefix_tree import TreeLayout
from agentgym.engines.local.quiet import quiet
from agentgym.engines.memory import CACHE_BYTES
from agentgym.errors import GPUNotAvailableError, ModelError, first_line
from agentgym.models.chat_template import ChatTemplate
from agentgym.models.folder import (
    ADAPTER_FILE,
    SMALL_PARAMETERS,
    held_adapter,
    held_roles,
    is_small,
    model_source,
    read_json,
)
from agentgym.models.template import template_of

_LEAST_TOKENS = 512
"""Fewest tokens that must fit into the cache: a prompt needs about as many."""
_FAR = 0.1
"""Largest accepted relative difference of hidden states that are computed in two ways,
e.g. in a prefix tree and in separate rows. Rounding causes much less, attention to
wrong tokens much more."""
_ROUNDING = 0.01


def load_model(
    model: str,
    *,
    device: str,
    rank: int | None,
    seed: int,
    precision: Precision = "auto",
    recompute: bool | None = None,
    template: TemplateSettings | None = None,
    roles: tuple[str, ...] = (),
) -> LoadedModel:
    """Load a policy by name, folder or Hugging Face id."""
    _remove_empty_caches()
    if device == "cuda" and not torch.cuda.is_available():
        raise GPUNotAvailableError(
            "There is a GPU, but this torch cannot use it (torch.cuda.is_available() "
            "is false). Install a CUDA build of torch, or use --gpu none."
        )
    source = model_source(model)
    saved = held_adapter(Path(source))
    given = saved is not None
    roles = held_roles(Path(source)) if given else roles
    keeps = given or rank or (rank is None and _is_held_in_half(source))
    dtype = _dtype(model, precision, device) if keeps else torch.float32
    with quiet():
        tokenizer, causal = _read(model, source, saved, dtype=dtype)
    used = template_of(source, template)
    tokenizer.chat_template = used.chat_template or tokenizer.chat_template
    chat_template = ChatTemplate(model, tokenizer, used)
    traits = find_traits(model, causal)
    adapter = adapt(causal, source if given else None, rank, seed, roles)
    if adapter is not None:
        causal = adapter.get_base_model()  # type: ignore[assignment]
        compute_in_half(causal)
    causal.to(device).eval()  # type: ignore[arg-type]
    traits = _examine(model, causal, traits)
    if adapter is None:
        _freeze_unused(causal)
    if rank is None:
        causal.requires_grad_(False)
        if adapter is not None and not roles:
            merge(causal)
            adapter = None
    merged = 0 if adapter is None or roles else _merged_bytes(causal)
    merges, budget = True, CACHE_BYTES
    if device == "cuda":
        torch.cuda.empty_cache()
        free = torch.cuda.mem_get_info(causal.device)[0]
        merges = free >= 2 * merged
        budget = (free - merged * merges) // 4  # training needs most of the rest
    held = _cache_tokens(model, causal, traits, budget)
    return LoadedModel(
        name=model,
        model=causal,
        adapter=adapter,
        tokenizer=tokenizer,
        template=chat_template,
        device=torch.device(device),
        cores=torch.get_num_threads(),
        context=int(min(longest_text(causal.config), tokenizer.model_max_length, held)),
        stop_ids=stop_ids(model, causal.generation_config, tokenizer),
        cache_bytes=budget,
        cache_tokens=held,
        traits=traits,
        roles=roles,
        merges=merges,
        recomputed=_recomputed(model, causal, recompute) if rank is not None else (),
    )


def _freeze_unused(causal: PreTrainedModel) -> None:
    """Freeze the parts of the model that process e.g. images instead of text."""
    used = {id(p) for p in causal.get_decoder().parameters()}
    if (head := causal.get_output_embeddings()) is not None:
        used |= {id(p) for p in head.parameters()}
    for parameter in causal.parameters():
        if id(parameter) not in used:
            parameter.requires_grad_(False)


def _remove_empty_caches() -> None:
    """Remove the empty folders that importing transformers leaves in TMPDIR."""
    for folder in Path(gettempdir()).glob("torchinductor_*"):
        with suppress(OSError):  # in use, or another user's
            folder.rmdir()


def _read(
    model: str, source: str, adapter: Path | None, *, dtype: torch.dtype
) -> tuple[PreTrainedTokenizerBase, PreTrainedModel]:
    """Load tokenizer and weights; for an adapter, the weights of its base model."""
    try:
        tokenizer = AutoTokenizer.from_pretrained(source)
        if adapter is not None:
            settings = parse_json((adapter / ADAPTER_FILE).read_text(encoding="utf-8"))
            source = model_source(str(settings["base_model_name_or_path"]))
        causal = find_class(model, source).from_pretrained(
            source, dtype=dtype, attn_implementation="eager"
        )
    except (OSError, ValueError, KeyError, SafetensorError) as error:
        reason = first_line(error)
        raise ModelError(
            f"The model {model!r} cannot be loaded: {reason} Without a network, give "
            "a folder that holds the model, or use --model nano."
        ) from error
    return tokenizer, causal


def _dtype(model: str, precision: Precision, device: str) -> torch.dtype:
    """Return the number type of frozen weights for the setting ``precision``."""
    if precision != "auto":
        is_half = precision == "bf16"
    elif device == "cuda":
        is_half = torch.cuda.is_bf16_supported(including_emulation=False)
    else:
        is_half = cpu_has_half() and not is_small(model)
    return torch.bfloat16 if is_half else torch.float32


def _is_held_in_half(source: str) -> bool:
    """Return whether ``config.json`` says that the files store 16 bits per weight."""
    file = Path(source) / "config.json"
    found = read_json(file) if file.is_file() else {}
    named = found.get("dtype") or found.get("torch_dtype")
    return str(named).removeprefix("torch.") in ("bfloat16", "float16")


def _recomputed(
    model: str, causal: PreTrainedModel, wanted: bool | None
) -> tuple[nn.Module, ...]:
    given = bool(wanted)
    if wanted is None:
        wanted = causal.num_parameters() >= SMALL_PARAMETERS
    if not wanted:
        return ()
    layers = causal.get_decoder().modules()
    found = [m for m in layers if isinstance(m, GradientCheckpointingLayer)]
    if not found and given:
        raise ModelError(
            f"The layers of {model!r} cannot be computed again in the backward pass. "
            "Set gradient_checkpointing to false."
        )
    return tuple(found)


def _merged_bytes(causal: PreTrainedModel) -> int:
    """Return the size in bytes of the weights that a sampling copy merges."""
    weights = [m.get_base_layer().weight for m in mergeable(causal).values()]
    return sum(w.nbytes for w in weights if w.dtype is torch.float32)


def _cache_tokens(
    model: str, causal: PreTrainedModel, traits: Traits, budget: int
) -> int:
    """Return how many tokens the KV cache can hold in ``budget`` bytes."""
    itemsize = causal.dtype.itemsize
    size = traits.growing * itemsize
    left = budget - traits.bounded * itemsize
    tokens = left // size if size else UNLIMITED * (left > 0)
    if tokens < _LEAST_TOKENS:
        raise ModelError(
            f"The keys and values of {model!r} take {size:,} bytes a token, so that "
            f"the {budget / 2**30:.2f} GiB there are for them hold only {tokens} "
            "tokens. Free memory on the GPU, or use a smaller model."
        )
    return tokens


def stop_ids(
    model: str, settings: GenerationConfig | None, tokenizer: PreTrainedTokenizerBase
) -> frozenset[int]:
    """Return the end tokens of the tokenizer and of the model's generation settings."""
    more = None if settings is None else settings.eos_token_id
    found = [tokenizer.eos_token_id, *(more if isinstance(more, list) else [more])]
    ids = frozenset(int(i) for i in found if i is not None)
    if not ids:
        raise ModelError(f"The tokenizer of {model!r} names no end token (eos_token).")
    return ids


@torch.inference_mode()
def _examine(model: str, causal: PreTrainedModel, traits: Traits) -> Traits:
    """Test a loaded model's traits on short sequences; return the corrected traits."""
    if not traits.needs_eager:
        causal.set_attn_implementation(attention.register())
    ids = torch.tensor([0, 1, 2, 3, 4, 5, 6], device=causal.device)
    positions = torch.arange(len(ids), device=causal.device)
    alone = decoder_states(causal, ids, positions, None)
    logits = causal(input_ids=ids[None]).logits[0]
    head = causal.get_output_embeddings()
    assert head is not None  # find_traits has checked
    if _apart(head(alone), logits) > _ROUNDING:
        traits = replace(traits, plain_head=False)
    if traits.is_packed:
        if _apart(_tree(causal), _rows(causal)) < _FAR:
            return traits
        traits = replace(traits, cache=None, obstacles=("attention of its own",))
    if _apart(_continued(causal, ids, [3, 1, 1, 1, 1]), alone) > _FAR:
        raise ModelError(
            f"The cache of {model!r} (architecture {causal.config.model_type!r}) does "
            "not continue a text as the model does without one, so this engine "
            "cannot sample from it. Use another model."
        )
    several = _apart(_continued(causal, ids, [3, 3, 1]), alone) < _FAR
    return replace(traits, continues=several)


def _apart(found: Tensor, expected: Tensor) -> float:
    """Return the norm of the tensors' difference, divided by that of ``expected``."""
    difference = (found.float() - expected.float()).norm()
    return float(difference / expected.float().norm().clamp(min=1e-30))


def _rows(causal: PreTrainedModel) -> Tensor:
    """Return the hidden states of two sequences, computed in two rows.

    The states of their common prefix are returned only once.
    """
    states: Tensor = causal.get_decoder()(
        input_ids=torch.tensor([[0, 1, 2, 3], [0, 1, 4, 5]], device=causal.device),
        use_cache=False,
    ).last_hidden_state
    return torch.cat([states[0], states[1, 2:]])


def _tree(causal: PreTrainedModel) -> Tensor:
    """Return the hidden states of the same two sequences, computed in one tree."""
    tree = torch.tensor([[0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 2, 3]], device=causal.device)
    layout = TreeLayout([2, 2, 2], [4, 2], [[0, 1, 2], [0, 1, 3]])
    return decoder_states(causal, tree[0], tree[1], layout)


def _continued(causal: PreTrainedModel, ids: Tensor, counts: list[int]) -> Tensor:
    """Return the hidden states of tokens that are added to a cache in several parts."""
    cache = DynamicCache(config=causal.config)
    parts = [
        causal.get_decoder()(
            input_ids=part[None], past_key_values=cache, use_cache=True
        ).last_hidden_state[0]
        for part in ids.split(counts)
    ]
    return torch.cat(parts)
