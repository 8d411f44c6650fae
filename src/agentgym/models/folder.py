"""Read a model's folder without torch or transformers."""

import math
import struct
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from agentgym.core.files import is_below, parse_json, write_json
from agentgym.errors import ModelError
from agentgym.models.nano import nano_path
from agentgym.models.reference import is_converted
from agentgym.plugins import registered

NANO = "nano"
ADAPTER_FILE = "adapter_config.json"
ROLES_FILE = "roles.json"
"""File that names the folder of each role's adapter, for a team of agents."""
CONFIG_FILE = "config.json"
_MARKS = (CONFIG_FILE, ADAPTER_FILE, ROLES_FILE)
SOURCE_FILE, SOURCE = "agentgym_source.json", "model"
"""The file in a converted folder, and its key, that name the GGUF file."""
_BASE = "base_model_name_or_path"
DEFAULT_RANK = 16
LORA_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""The values that vLLM accepts as its maximum LoRA rank."""
SMALL_PARAMETERS = 30_000_000
_TOKENIZERS = "tokenizer.json", "vocab.*", "*.model", "*.tiktoken", "tekken.json"


def model_source(model: str) -> str:
    """Return the folder of a model, converted from GGUF if needed, or its hub id."""
    if is_converted(model):
        return str(registered("agentgym.models", "gguf")(model))
    path = nano_path() if model == NANO else Path(model).expanduser()
    if any((path / name).is_file() for name in _MARKS):
        return str(path.resolve())
    if path.is_file():
        raise ModelError(
            f"{model} is a file, not a model: give a folder with config.json, a GGUF "
            "file, which ends in .gguf, an id of Hugging Face, or nano."
        )
    if model == NANO:
        raise ModelError(f"The policy 'nano' is missing from {path}; reinstall.")
    if path.is_dir():
        files = sorted(path.glob("*.gguf"))
        at = f"its file {files[0]}" if files else "a folder written by save_pretrained"
        raise ModelError(
            f"The folder {path} holds no model: config.json is missing. Point --model "
            f"at {at}, or use --model nano."
        )
    if path.is_absolute() or model.startswith((".", "~")) or model.count("/") > 1:
        raise ModelError(f"No model is at {model!r}: the folder does not exist.")
    return model


def new_rank(model: str, lora_rank: int | None) -> int:
    """Return the rank of a new adapter, by default 16; 0 for none, as for nano."""
    if lora_rank is not None:
        return lora_rank
    return 0 if model == NANO else DEFAULT_RANK


def held_rank(folder: Path) -> int:
    """Return the rank of the adapter in a model's folder; 0 if there is none."""
    held = held_adapter(folder)
    if held is None:
        return 0
    path = held / ADAPTER_FILE
    try:
        return int(parse_json(path.read_text(encoding="utf-8"))["r"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ModelError(
            f"The adapter settings {path} cannot be read as LoRA's: {error!r}."
        ) from None


def adapter_folders(folder: Path) -> dict[str, Path]:
    """Return the adapters' folders by role; ``""`` is the role of one for all."""
    if (folder / ADAPTER_FILE).is_file():
        return {"": folder}
    if not (folder / ROLES_FILE).is_file():
        return {}
    names = read_json(folder / ROLES_FILE)
    for name in names.values():
        if not isinstance(name, str) or not is_below(name):
            raise ModelError(
                f"{folder / ROLES_FILE} names {name!r}, which is not a folder below "
                "it. Train or download the agent again."
            )
    return {role: folder / name for role, name in names.items()}


def held_adapter(folder: Path) -> Path | None:
    """Return the first adapter's folder, or None; all have the same base and rank."""
    return next(iter(adapter_folders(folder).values()), None)


def held_roles(folder: Path) -> tuple[str, ...]:
    """Return the roles that have their own adapter in a model's folder."""
    return tuple(role for role in adapter_folders(folder) if role)


def name_base(folder: Path) -> None:
    """Name the GGUF file, not its converted folder, as the adapters' base model."""
    # The converted folder is a cache, and its path differs between machines.
    for held in adapter_folders(folder).values():
        path = held / ADAPTER_FILE
        settings = read_json(path)
        source = Path(str(settings.get(_BASE))) / SOURCE_FILE
        if source.is_file():
            write_json(path, {**settings, _BASE: read_json(source)[SOURCE]})


def base_folder(source: str, *, fetch: bool = False) -> Path | None:
    """Return the folder with ``config.json``; None if it is not on this machine."""
    adapter = held_adapter(Path(source))
    if adapter is not None:
        base = read_json(adapter / ADAPTER_FILE).get(_BASE)
        if not isinstance(base, str):
            return None
        source = model_source(base)
    if Path(source).is_dir():
        return Path(source) if (Path(source) / CONFIG_FILE).is_file() else None
    try:
        import httpx
        from huggingface_hub import hf_hub_download, try_to_load_from_cache
    except ImportError:
        return None
    with suppress(OSError, ValueError, RuntimeError, httpx.HTTPError):
        if fetch:
            return Path(hf_hub_download(source, CONFIG_FILE)).parent
        if isinstance(found := try_to_load_from_cache(source, CONFIG_FILE), str):
            return Path(found).parent
    return None


def count_parameters(folder: Path) -> int:
    """Return the number of parameters in the safetensors files; 0 without files."""
    files = sorted(folder.glob("*.safetensors"))
    index = folder / "model.safetensors.index.json"
    if not index.is_file():
        return sum(map(_parameters, files))
    message = read_json(index)
    shards = set(message.get("weight_map", {}).values())
    if shards and shards <= {file.name for file in files}:
        return sum(_parameters(folder / shard) for shard in shards)
    found = message.get("metadata", {}).get("total_parameters", 0)
    return int(found) if isinstance(found, int | float) else 0


def is_small(model: str) -> bool:
    """Return whether a model has fewer than 30 million parameters, like nano."""
    # Such a model can only call tools, so it has no other abilities to lose.
    if model == NANO:
        return True
    folder = base_folder(model_source(model))
    return folder is not None and 0 < count_parameters(folder) < SMALL_PARAMETERS


def read_json(path: Path) -> dict[str, Any]:
    """Read a JSON object from a settings file; raise ModelError if it has none."""
    try:
        found = parse_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read: {error}") from None
    if not isinstance(found, dict):
        raise ModelError(f"{path} holds no JSON object.")
    return found


def describe_model(model: str, rank: int, roles: Sequence[str] = ()) -> str:
    """Describe the policy, e.g. ``nano (1.1M parameters, full weights)``."""
    source = model_source(model)
    trained = f"LoRA rank {rank}" if rank else "full weights"
    if roles:
        trained += f" for each of {', '.join(roles)}"
    folder = Path(source)
    if not folder.is_dir():
        return f"{model} ({trained})"
    _check_tokenizer(folder)
    count = sum(_parameters(path) for path in sorted(folder.glob("*.safetensors")))
    if held_adapter(folder) is not None or not count:
        return f"{model} ({trained})"
    return f"{model} ({_short(count)} parameters, {trained})"


def _check_tokenizer(folder: Path) -> None:
    if not any(found for name in _TOKENIZERS for found in folder.glob(name)):
        raise ModelError(
            f"The folder {folder} holds no tokenizer (tokenizer.json). Save it "
            "next to the model: tokenizer.save_pretrained(folder)."
        )


def _parameters(path: Path) -> int:
    """Return the number of parameters in a safetensors file, from its header."""
    again = "Save or download the model again."
    try:
        size = path.stat().st_size
        with path.open("rb") as file:
            (length,) = struct.unpack("<Q", file.read(8))
            if length > size - 8:
                raise ValueError("the file ends within its header")
            header = parse_json(file.read(length))
        header.pop("__metadata__", None)
        count: int = sum(math.prod(tensor["shape"]) for tensor in header.values())
        ends: list[int] = [tensor["data_offsets"][1] for tensor in header.values()]
    except (OSError, ValueError, TypeError, LookupError, struct.error) as error:
        message = f"The weights {path} cannot be read: {error}. {again}"
        raise ModelError(message) from None
    if (whole := 8 + length + max(ends, default=0)) != size:
        raise ModelError(
            f"The weights {path} are damaged: the file has {size:,} bytes and not the "
            f"{whole:,} that its header says. {again}"
        )
    return count


def _short(count: int) -> str:
    for unit, name in ((10**9, "B"), (10**6, "M"), (10**3, "k")):
        if count >= unit:
            return f"{count / unit:.1f}{name}"
    return str(count)
