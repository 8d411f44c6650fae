"""Settings: models whose values come from code and YAML, with errors that explain."""

import os
import re
from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Self

import yaml
from pydantic import BaseModel, ValidationError

from agentgym.errors import ConfigError
from agentgym.security.redaction import get_logger, quoted

logger = get_logger(__name__)

PREFIX = "AGENTGYM_"
OTHER_VARIABLES = frozenset(
    {"home", "api_key", "elsewhere_python", "engine_key", "gateway_key", "secrets"}
)
"""``AGENTGYM_HOME`` and so on, which are not settings."""
LONGEST_S = 7 * 86_400.0
"""Of every time limit: a week."""
_YAML = "Write one setting a line: its name, a colon and its value."
_SHOWN = 80
_MOST_CHARACTERS = 1 << 20
_MOST_VALUES = 100_000
"""Values of a YAML text, with its aliases expanded."""
_BOOL = "tag:yaml.org,2002:bool"
_FLOAT = "tag:yaml.org,2002:float"
_TRUE = re.compile("^(?:true|True|TRUE|false|False|FALSE)$")
_NUMBER = re.compile(r"^[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)[eE][-+]?[0-9]+$")


class _Loader(yaml.SafeLoader):
    """Reads plain data, with the booleans and exponents of YAML 1.2.

    PyYAML reads 1.1, where the key ``yes`` is ``True`` and ``1e-4`` is text.
    """


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in found if tag != _BOOL]
    for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(_BOOL, _TRUE, list("tTfF"))
_Loader.add_implicit_resolver(_FLOAT, _NUMBER, list("-+.0123456789"))


class Settings(BaseModel):
    """A set of settings; unknown keys are refused with the nearest name.

    Whatever makes one raises a :class:`~agentgym.errors.ConfigError` that says which
    key and value are wrong, and the expected values.
    """

    @classmethod
    def create(cls, **values: Any) -> Self:
        """Validate ``values``; those that are None take their defaults."""
        return cls.restore(_given(values))

    @classmethod
    def restore(cls, values: dict[str, Any]) -> Self:
        """Validate ``values`` that were recorded; those that are None stay None."""
        try:
            return cls(**values)
        except ValidationError as error:
            problems = explain_invalid(error, cls.names())
            raise ConfigError(f"Invalid configuration: {problems}") from None

    def replaced(self, **changes: Any) -> Self:
        """Return a copy with ``changes`` that are not None, validated again."""
        values = {**self.flat(self.model_dump()), **self.flat(_given(changes))}
        return self.restore(values)

    @classmethod
    def names(cls) -> list[str]:
        """Return the names by which settings can be given."""
        return sorted(cls.model_fields)

    @classmethod
    def flat(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Return ``values`` so that one can be replaced without the others."""
        return values

    @classmethod
    def renamed(cls, values: dict[str, Any]) -> str:
        """Return a sentence on outdated keys of a file; empty if it has none."""
        return ""

    @classmethod
    def from_yaml(cls, path: str | Path, **overrides: Any) -> Self:
        """Read a YAML mapping; ``overrides`` that are not None win over it."""
        try:
            data = read_yaml(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError, yaml.YAMLError) as error:
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
        if message := cls.renamed(values):
            logger.warning("%s: %s", path, message)
        return cls.create(**{**cls.flat(values), **cls.flat(_given(overrides))})


def read_yaml(text: str) -> Any:
    """Return the value of a YAML text.

    A few lines of aliases of aliases (``b: [*a, *a]``) can stand for more values than
    memory holds; a text that does is refused before a value is made of it.

    Raises:
        yaml.YAMLError: It is not YAML, is too long or too deep, or its aliases stand
            for too much, or for themselves.
    """
    if len(text) > _MOST_CHARACTERS:
        raise yaml.YAMLError(
            f"it has {len(text):,} characters, and {_MOST_CHARACTERS:,} are the most"
        )
    try:
        if (root := yaml.compose(text, _Loader)) is not None:
            _count(root, {})
        return yaml.load(text, _Loader)
    except RecursionError:
        raise yaml.YAMLError("it is nested too deep") from None


def _count(node: yaml.Node, known: dict[int, int]) -> int:
    """Return how many values a node stands for; each node is looked at once."""
    counted = known.get(id(node))
    if counted == 0:
        raise yaml.YAMLError("an alias in it refers to a value that contains it")
    if counted is not None:
        return counted
    known[id(node)] = 0
    total = 1
    if isinstance(node, yaml.SequenceNode):
        total += sum(_count(each, known) for each in node.value)
    elif isinstance(node, yaml.MappingNode):
        total += sum(_count(part, known) for pair in node.value for part in pair)
    if total > _MOST_VALUES:
        raise yaml.YAMLError(f"its aliases stand for more than {_MOST_VALUES:,} values")
    known[id(node)] = total
    return total


def read_assignments(words: Sequence[str], settings: Iterable[str]) -> dict[str, Any]:
    """Read ``KEY=VALUE`` texts, whose values are YAML: ``learning_rate=1e-4``.

    Args:
        words: The texts; the last of one key counts.
        settings: The names that a key may have.

    Raises:
        ConfigError: A text has no ``=``, its key is unknown, or its value is malformed.
    """
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
        except (ValueError, yaml.YAMLError):
            raise ConfigError(f"{word!r}: the value cannot be read as YAML.") from None
    return values


def variable_of(setting: str) -> str:
    """Return the name of the environment variable that sets ``setting``."""
    return PREFIX + setting.upper()


def initial_environment() -> dict[str, str]:
    """Return the set variables, with their values at the start of this process.

    Programs are started with these. A value that was set later, as one of the user's
    keys is on another machine, is then in no environment that other processes can read.
    Where the system does not report them, all variables are returned with their current
    values.
    """
    try:
        begun = os.fsdecode(Path("/proc/self/environ").read_bytes()).split("\0")
    except OSError:
        return dict(os.environ)
    pairs = (line.partition("=") for line in begun)
    return {name: value for name, _, value in pairs if name in os.environ}


def explain_invalid(error: ValidationError, known: list[str]) -> str:
    """Return the problem of each setting; ``known`` are the right names."""
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
    """Return a message that ``key`` is unknown, with the nearest known name."""
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
