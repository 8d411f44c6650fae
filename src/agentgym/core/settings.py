"""Settings: read values from code and YAML, with errors that explain the fix."""

import os
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ValidationError

from agentgym.errors import ConfigError
from agentgym.security.redaction import quoted

PREFIX = "AGENTGYM_"
OTHER_VARIABLES = frozenset(
    {"home", "api_key", "elsewhere_python", "engine_key", "gateway_key", "secrets"}
)
"""Lower-case names, without ``AGENTGYM_``, of variables that are not settings."""
LONGEST_S = 7 * 86_400.0
"""Largest allowed time limit in seconds: a week."""
MANY = 10**5
"""Upper limit of numeric settings, since a typing error could exhaust the memory."""
_YAML = "Write one setting a line: its name, a colon and its value."
PathText = Annotated[
    str, BeforeValidator(lambda value: str(value) if isinstance(value, Path) else value)
]
"""A file's path, or the text itself."""
_SHOWN = 80


class Settings(BaseModel):
    """Base class of settings with clear error messages.

    The methods below raise :class:`~agentgym.errors.ConfigError` for a wrong value or
    an unknown key. The message has the key, its value and the expected values; for an
    unknown key, the nearest known key.
    """

    @classmethod
    def create(cls, **values: Any) -> Self:
        """Build settings from ``values``; a value of None means the default."""
        return cls.restore(_given(cls.flat(values)))

    @classmethod
    def restore(cls, values: dict[str, Any]) -> Self:
        """Build settings from ``values`` that a run recorded.

        Unlike in :meth:`create`, a value of None is kept.
        """
        try:
            return cls(**values)
        except ValidationError as error:
            problems = explain_invalid(error, cls.names())
            raise ConfigError(f"Invalid configuration: {problems}") from None

    def replaced(self, **changes: Any) -> Self:
        """Return a copy with ``changes``; ignore changes whose value is None."""
        given = self.flat(_given(changes))
        made = self.restore({**self.flat(self.model_dump()), **given})
        chosen = self.model_fields_set | {name.partition(".")[0] for name in given}
        made.model_fields_set.intersection_update(chosen)
        return made

    @classmethod
    def names(cls) -> list[str]:
        """Return the names of all settings, sorted."""
        return sorted(cls.model_fields)

    @classmethod
    def flat(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Return ``values`` with dotted names for nested settings.

        Each nested setting can then be replaced separately.
        """
        return values

    @classmethod
    def from_yaml(cls, path: str | Path, **overrides: Any) -> Self:
        """Read settings from a YAML file; ``overrides`` win unless they are None."""
        from agentgym.core.yaml_text import read_yaml

        try:
            data = read_yaml(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            reason = " ".join(str(error).split())
            raise ConfigError(
                f"Cannot read the configuration {path}: {reason}"
            ) from None
        if data is None:
            raise ConfigError(f"The configuration {path} is empty. {_YAML}")
        if not isinstance(data, dict):
            is_list = isinstance(data, list)
            kind = "a list" if is_list else f"the value {quoted(data, 40)}"
            raise ConfigError(f"The configuration {path} holds {kind}. {_YAML}")
        values = {str(key): value for key, value in data.items()}
        return cls.create(**{**cls.flat(values), **cls.flat(_given(overrides))})


def read_assignments(words: Sequence[str], settings: Iterable[str]) -> dict[str, Any]:
    """Parse ``KEY=VALUE`` texts whose values are YAML: ``learning_rate=1e-4``."""
    from agentgym.core.yaml_text import read_yaml

    known, values = sorted(settings), {}
    for word in words:
        key, equals, text = word.partition("=")
        key = key.strip().replace("-", "_")
        if not equals or not key:
            raise ConfigError(
                f"{word!r} does not set anything: write KEY=VALUE, as in "
                "learning_rate=1e-4."
            )
        if key not in known:
            raise ConfigError(f"Invalid configuration: {_unknown(key, known)}")
        try:
            values[key] = read_yaml(text)
        except ValueError:
            raise ConfigError(f"{word!r}: the value cannot be read as YAML.") from None
    return values


def variable_of(setting: str) -> str:
    """Return the name of the environment variable that sets ``setting``."""
    return PREFIX + setting.upper()


def initial_environment() -> dict[str, str]:
    """Return the environment variables with their values at this process's start.

    Child processes get these variables. Variables that were set later, such as a user's
    keys on a remote machine, are left out, since other processes can read a child's
    environment. Variables that were deleted since the start are left out too. If the
    system does not report the initial values, the current variables are returned.
    """
    try:
        begun = os.fsdecode(Path("/proc/self/environ").read_bytes()).split("\0")
    except OSError:
        return dict(os.environ)
    pairs = (line.partition("=") for line in begun)
    return {name: value for name, _, value in pairs if name in os.environ}


def explain_invalid(error: ValidationError, known: list[str]) -> str:
    """Return one message about all invalid settings."""
    lines = []
    for problem in error.errors():
        key = ".".join(str(part) for part in problem["loc"])
        if problem["type"] == "extra_forbidden":
            lines.append(_unknown(key, known))
        else:
            given = repr(problem["input"])
            given = given if len(given) <= _SHOWN else f"{given[:_SHOWN]}…"
            message = problem["msg"].removeprefix("Value error, ")
            lines.append(f"{key} = {given}: {message}")
    return "; ".join(lines)


def _unknown(key: str, settings: list[str]) -> str:
    """Return a message that ``key`` is unknown, with the nearest of ``settings``."""
    alike = [name for name in settings if ("." in name) == ("." in key)]
    settings = alike or settings
    if not key.upper().startswith(PREFIX):
        close = get_close_matches(key, settings, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known: {settings}"
        return f"unknown setting {key!r}, {hint}"
    word = key[len(PREFIX) :].lower()
    close = get_close_matches(word, [*settings, *OTHER_VARIABLES], n=1)
    hint = (
        f"did you mean {variable_of(close[0])!r}?"
        if close
        else f"known: {PREFIX}<SETTING> for {settings}"
    )
    return f"unknown environment variable {key!r}, {hint}"


def _given(values: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if value is not None}
