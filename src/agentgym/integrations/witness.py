"""Notes of a trial on more than its calls: lines of JSON in a file of its worker."""

import json
from collections.abc import Mapping
from contextvars import ContextVar
from pathlib import Path
from typing import Any

_MODEL_NAMES = ("model_name", "model", "model_id", "_model_name")
_INTO: list[Path] = []
_REPLACED: ContextVar[str] = ContextVar("agentgym_replaced", default="")


def note_into(file: Path) -> None:
    """Let :func:`saw` add lines to a file; else it does nothing."""
    _INTO[:] = [file]


def saw(**what: Any) -> None:
    """Add a line to the file of the trial."""
    for file in _INTO:
        with file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(what) + "\n")


def seen(file: Path) -> list[Mapping[str, Any]]:
    """Return the lines of a trial's file, each once."""
    lines = file.read_text(encoding="utf-8").splitlines() if file.is_file() else []
    return [json.loads(line) for line in dict.fromkeys(lines)]


def replaces(model: Any) -> None:
    """Remember the model that the next request of this context replaces."""
    if _INTO and not type(model).__module__.startswith("agentgym."):
        _REPLACED.set(model_words(model))


def saw_request(role: str) -> None:
    """Note which model a request of an agent replaces."""
    if _INTO and (words := _REPLACED.get()):
        saw(role=role, model=words)


def model_words(model: Any) -> str:
    """Return a model object as text, e.g. ``ChatOpenAI gpt-5``; "" if it is unknown."""
    if model is None or isinstance(model, str):
        return model or ""
    config = getattr(model, "config", None)
    given = [getattr(model, name, None) for name in _MODEL_NAMES]
    given += [config.get("model_id")] if isinstance(config, dict) else []
    named = next((name for name in given if isinstance(name, str)), "")
    return f"{type(model).__name__} {named}".strip()
