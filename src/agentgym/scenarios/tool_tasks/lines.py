"""Read lines of JSON Lines files, and report invalid lines."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field, ValidationError

from agentgym.core.components import TrainTokens
from agentgym.core.tools import ToolSpec, is_recordable
from agentgym.errors import UsageError, first_problem, unreadable

_MEANT = {"name": "tool", "arguments": "args"} | dict.fromkeys(
    ("input", "prompt", "query", "question", "task"), "instruction"
)
"""Keys that other formats have for ours."""


class BrokenLineError(ValueError):
    """A line of a JSON Lines file is invalid; the message says why."""


def numbered_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield number (from 1) and text of each line but empty ones and ``#`` comments."""
    for number, line in enumerate(read_text(path).split("\n"), 1):
        if line.strip() and not line.lstrip().startswith("#"):
            yield number, line


def read_text(path: Path) -> str:
    """Return the text of a UTF-8 file."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"Cannot read {path}: {unreadable(error)}.") from None


class FileSettings(BaseModel):
    """Settings for all tasks of a file; None for settings that it does not have."""

    train_tokens: TrainTokens | None = None
    max_turns: int | None = Field(None, strict=True, ge=2, le=10_000)


def read_settings(path: Path) -> FileSettings:
    """Return the settings in a tasks file's optional first line."""
    number, text = next(numbered_lines(path), (0, ""))
    try:
        return read_as(FileSettings, _header(text) or {}, "it")
    except BrokenLineError as error:
        raise UsageError(f"{path}, line {number}: {error}.") from None


def _header(text: str) -> dict[str, Any] | None:
    """Return the settings in a file's first line; None if it has no settings."""
    try:
        value = read_object(text)
    except BrokenLineError:
        return None
    known = FileSettings.model_fields
    is_header = "instruction" not in value and any(key in value for key in known)
    return value if is_header else None


def task_lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the number and text of each task line; skip the line with settings."""
    for place, (number, text) in enumerate(numbered_lines(path)):
        if place or _header(text) is None:
            yield number, text


def read_object(text: str) -> dict[str, Any]:
    """Parse a line as a JSON object."""
    try:
        value = json.loads(text, object_pairs_hook=_without_repeats)
    except BrokenLineError:
        raise
    except json.JSONDecodeError as error:
        raise BrokenLineError(
            f"it is not JSON ({error.msg}, column {error.colno})"
        ) from None
    except ValueError:
        raise BrokenLineError("it has a number of too many digits") from None
    except RecursionError:
        raise BrokenLineError("it is nested too deeply") from None
    if not isinstance(value, dict):
        raise BrokenLineError(f"it is {shown(value)}, not an object in {{}}")
    if not is_recordable(value):
        raise BrokenLineError("it has a number or a character that JSON cannot hold")
    return value


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise BrokenLineError(f"{twice!r} stands in it twice")
    return found


def read_as[M: BaseModel](kind: type[M], value: Any, where: str) -> M:
    """Read a JSON object as a model; ``where`` names the object in errors."""
    if not isinstance(value, dict):
        raise BrokenLineError(f"{where} is {shown(value)}, not an object in {{}}")
    check_keys(value, kind.model_fields, where)
    try:
        return kind.model_validate(value)
    except ValidationError as error:
        first = error.errors()[0]
        value = (
            "" if first["type"] == "missing" else f" (it is {shown(first['input'])})"
        )
        place = "" if where == "it" else f"{where}."
        raise BrokenLineError(f"{place}{first_problem(error)}{value}") from None


def check_keys(value: Mapping[str, Any], known: Collection[str], where: str) -> None:
    """Check that an object has no unknown keys."""
    for key in value:
        if key not in known:
            close = get_close_matches(key, known, n=1)
            close = close or get_close_matches(_MEANT.get(key, key), known, n=1)
            hint = f"did you mean {close[0]!r}? It may have" if close else "it may have"
            raise BrokenLineError(f"{where} has {key!r}; {hint}: {', '.join(known)}")


def by_fault(places: Mapping[str, Sequence[str]]) -> list[str]:
    """Return a sentence for each fault, with the first of its places."""
    return [
        f"{first}{f' and {len(others)} more' if others else ''}: {fault}"
        for fault, (first, *others) in places.items()
    ]


def arguments_fault(spec: ToolSpec, arguments: dict[str, Any]) -> str:
    """Return why a tool refuses an expected call's arguments; "" if it accepts them."""
    try:
        spec.validate(arguments)
    except ValidationError as error:
        first = error.errors()[0]
        is_given = first["loc"] and first["type"] not in ("missing", "extra_forbidden")
        value = f" (it is {shown(first['input'])})" if is_given else ""
        known = spec.parameters.get("properties", {})
        takes = f"it takes {', '.join(known)}" if known else "it takes none"
        pairs = {n: get_close_matches(n, known, 1) for n in arguments if n not in known}
        hints = [
            f"; did you mean {close[0]!r}, not {name!r}?"
            for name, close in pairs.items()
            if close
        ]
        return (
            f"these are not arguments of {spec.name!r}: {first_problem(error)}{value}; "
            f"{takes}{''.join(hints[:1])}"
        )
    return ""


def shown(value: Any) -> str:
    """Return a value as short JSON for an error message; "missing" for None."""
    if value is None:
        return "missing"
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:57]}…"
