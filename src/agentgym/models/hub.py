"""Download agents and model settings from the Hugging Face hub, by ``owner/name``."""

import logging
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from agentgym.errors import ModelError, UsageError, first_line
from agentgym.install import install_command
from agentgym.models.folder import CONFIG_FILE, base_folder

_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_CACHED = re.compile(r"models--([^/]+?)--([^/]+)")


def is_id(text: str) -> bool:
    """Return whether a text has the form of a Hugging Face id, ``owner/name``."""
    return _ID.fullmatch(text) is not None


def require_config(source: str) -> None:
    """Download a model's ``config.json`` unless it is on this machine."""
    if Path(source).is_dir() or base_folder(source) is not None:
        return
    try:
        import httpx
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import (
            GatedRepoError,
            HFValidationError,
            RepositoryNotFoundError,
        )
    except ImportError:
        return  # loading the model reports the missing package
    other = "Give --model a folder, an id that is on this machine, or nano."
    if "@" in source:
        other = f"To measure a trained agent: agentgym eval --agent {source}"
    said: list[str] = []
    try:
        with _retries_kept(said):
            hf_hub_download(source, CONFIG_FILE)
    except GatedRepoError:
        why = "its terms must be accepted on Hugging Face first, and HF_TOKEN be set"
    except (RepositoryNotFoundError, HFValidationError):
        why = "Hugging Face has no model of that name, or a private one"
    except (OSError, ValueError, RuntimeError, httpx.HTTPError) as error:
        reason = said[0] if said else first_line(error)
        why = f"the request to Hugging Face failed ({reason.rstrip('.')})"
    else:
        return
    raise ModelError(f"The model {source!r} is not on this machine, and {why}. {other}")


@contextmanager
def _retries_kept(said: list[str]) -> Iterator[None]:
    """Collect huggingface_hub's warnings on failed requests; do not show them."""

    # It retries on a closed client, so that its own error hides the first one.
    def keep(record: logging.LogRecord) -> bool:
        said.append(record.getMessage())
        return False

    logger = logging.getLogger("huggingface_hub.utils._http")
    logger.addFilter(keep)
    try:
        yield
    finally:
        logger.removeFilter(keep)


def repository_of(folder: Path) -> str | None:
    """Return a cached model's Hugging Face id; None for a folder outside the cache."""
    found = _CACHED.fullmatch(folder.parent.parent.name)
    if found is None or folder.parent.name != "snapshots":
        return None
    return "/".join(found.groups())


def download(repository: str, card: str, model: str) -> Path:
    """Download an agent unless it is in Hugging Face's cache; return its folder."""
    message = f"No folder is named {repository!r}, and as a Hugging Face id"
    try:
        import httpx
        import huggingface_hub
    except ImportError:
        raise UsageError(
            f"{message} it needs huggingface_hub, which is not installed. Install it "
            f"with: {install_command('local')}"
        ) from None
    said: list[str] = []
    try:
        with _retries_kept(said):
            found = huggingface_hub.snapshot_download(
                repository, allow_patterns=[card, f"{model}/*"]
            )
    except (OSError, ValueError, RuntimeError, httpx.HTTPError) as error:
        reason = said[0] if said else first_line(error)
        raise UsageError(
            f"{message} it cannot be downloaded ({type(error).__name__}: {reason})"
        ) from None
    folder = Path(found)
    if not (folder / card).is_file():
        raise UsageError(
            f"{repository!r} on Hugging Face is not an agent: {card} is missing. To "
            "use "
            f"it as a model, give --model {repository}."
        )
    return folder
