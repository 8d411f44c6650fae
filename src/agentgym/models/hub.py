"""Agents on Hugging Face's hub: ``owner/name``."""

import re
from pathlib import Path

from agentgym.errors import UsageError
from agentgym.install import install_command

_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")
_CACHED = re.compile(r"models--([^/]+?)--([^/]+)")


def is_id(text: str) -> bool:
    """Say whether a text has the form of a Hugging Face id."""
    return _ID.fullmatch(text) is not None


def repository_of(folder: Path) -> str | None:
    """Return the id that a folder of Hugging Face's cache was downloaded from."""
    found = _CACHED.fullmatch(folder.parent.parent.name)
    if found is None or folder.parent.name != "snapshots":
        return None
    return "/".join(found.groups())


def download(repository: str, card: str, model: str) -> Path:
    """Return the folder of an agent, downloaded unless it is there already.

    Args:
        repository: Its id.
        card: The file that makes it an agent.
        model: Its folder of weights.

    Raises:
        UsageError: Hugging Face cannot be asked, or has no such agent.
    """
    told = f"No folder is named {repository!r}, and as a Hugging Face id"
    try:
        import httpx
        import huggingface_hub
    except ImportError:
        raise UsageError(
            f"{told} it needs huggingface_hub, which is not installed. Install it "
            f"with: {install_command('local')}"
        ) from None
    try:
        found = huggingface_hub.snapshot_download(
            repository, allow_patterns=[card, f"{model}/*"]
        )
    except (OSError, ValueError, httpx.HTTPError) as error:
        reason = str(error).strip().partition("\n")[0]
        raise UsageError(
            f"{told} it cannot be downloaded ({type(error).__name__}: {reason})"
        ) from None
    folder = Path(found)
    if not (folder / card).is_file():
        raise UsageError(
            f"{repository!r} on Hugging Face is no agent: {card} is missing. To use "
            f"it as a model, give --model {repository}."
        )
    return folder
