"""Verify checksums of a model's files, and refuse links and pickles."""

import hashlib
import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from agentgym.core.files import is_below
from agentgym.errors import CorruptModelError
from agentgym.security.redaction import quoted

_PICKLES = frozenset({".bin", ".ckpt", ".pickle", ".pkl", ".pt", ".pth"})
_CACHE = "__pycache__"


def checksums(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each file in a model's folder, by relative path."""
    return {
        path.relative_to(folder).as_posix(): _sha256(path) for path in _files(folder)
    }


def verify(folder: Path, expected: Mapping[str, str]) -> None:
    """Raise CorruptModelError if a model's files do not match their checksums."""
    for name, checksum in expected.items():
        path = folder / name
        if not is_below(name) or (path.exists() and not path.is_file()):
            raise CorruptModelError(
                f"agent.json in {folder.parent} has a checksum of {quoted(name)}, and "
                "that is not a file of its model. Do not use this agent: download it "
                "again from a source that you trust."
            )
        try:
            found = _sha256(path)
        except OSError as error:
            raise CorruptModelError(
                f"{path} cannot be read ({error.strerror}), and the agent was saved "
                "with it. Copy or save the agent again."
            ) from None
        if found != checksum:
            size = path.stat().st_size
            raise CorruptModelError(
                f"{path} is not as it was saved: it is cut short or altered. It has "
                f"{size:,} bytes and not the checksum in agent.json. Copy or save the "
                "agent again."
            )


def refuse_links(folder: Path, known: Collection[str]) -> None:
    """Raise CorruptModelError if an agent's folder has links to files outside of it."""
    # Saving or exporting the agent would copy the linked files.
    root = folder.resolve()
    if root.parent.name == "snapshots":  # files are in a sibling folder
        root = root.parents[1]
    for path in folder.rglob("*"):
        if not path.is_symlink():
            continue
        inside = path.relative_to(folder).as_posix()
        if path.is_file() and (path.resolve().is_relative_to(root) or inside in known):
            continue
        raise CorruptModelError(
            f"{path} is a link to {os.path.realpath(path)}, which is not a file of the "
            "agent. Replace it by a copy if the agent is yours; else do not use it."
        )


def refuse_pickles(folder: Path) -> None:
    """Raise CorruptModelError if a model has pickles, which can run code."""
    for path in _files(folder):
        if path.suffix.lower() in _PICKLES:
            raise CorruptModelError(
                f"{path} is a pickle, which can run any code when it is loaded. An "
                "agent has its weights in safetensors files and no pickle: remove it, "
                "or download the agent again."
            )


def _files(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.rglob("*")):
        if path.is_file() and _CACHE not in path.parts:
            yield path


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
