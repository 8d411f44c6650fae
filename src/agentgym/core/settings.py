"""Settings: read values from code and YAML, with errors that explain the fix."""

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
"""Suffixes of ``AGENTGYM_`` variables that are not settings, ``AGENTGYM_HOME`` and so
on."""
LONGEST_S = 7 * 86_400.0
"""Maximum of every time limit: a week, in seconds."""
_YAML = "Write one setting a line: its name, a colon and its value."
_SHOWN = 80
_MOST_CHARACTERS = 1 << 20
_MOST_VALUES = 100_000
"""Most values in a YAML text, with aliases expanded."""
_BOOL = "tag:yaml.org,2002:bool"
_FLOAT = "tag:yaml.org,2002:float"
_TRUE = re.compile("^(?:true|True|TRUE|false|False|FALSE)$")
_NUMBER = re.compile(r"^[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)[eE][-+]?[0-9]+$")


class _Loader(yaml.SafeLoader):
    """Reads plain YAML data, with the booleans and exponents of YAML 1.2.

    PyYAML implements 1.1, where the key ``yes`` is ``True`` and ``1e-4`` is text.
    """


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in found if tag != _BOOL]
    for first, found in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(_BOOL, _TRUE, list("tTfF"))
_Loader.add_implicit_resolver(_FLOAT, _NUMBER, list("-+.0123456789"))


class Settings(BaseModel):
    """Base class of settings; an unknown key is an error that names the nearest one.

    Every way to create settings raises :class:`~agentgym.errors.ConfigError`, with the
    wrong key and value and the expected values.
    """

    @classmethod
    def create(cls, **values: Any) -> Self:
        """Validate ``values``; a value of None takes the default."""
        return cls.restore(_given(values))

    @classmethod
    def restore(cls, values: dict[str, Any]) -> Self:
        """Validate recorded ``values``; a value of None stays None."""
        try:
            return cls(**values)
        except ValidationError as error:
            problems = explain_invalid(error, cls.names())
            raise ConfigError(f"Invalid configuration: {problems}") from None

    def replaced(self, **changes: Any) -> Self:
        """Return a validated copy with those ``changes`` that are not None."""
        values = {**self.flat(self.model_dump()), **self.flat(_given(changes))}
        return self.restore(values)

    @classmethod
    def names(cls) -> list[str]:
        """Return the names that can be set."""
        return sorted(cls.model_fields)

    @classmethod
    def flat(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Return ``values`` flattened, so that each can be replaced separately."""
        return values

    @classmethod
    def renamed(cls, values: dict[str, Any]) -> str:
        """Return a sentence on outdated keys of a file; empty if there are none."""
        return ""

    @classmethod
    def from_yaml(cls, path: str | Path, **overrides: Any) -> Self:
        """Read a YAML mapping; those ``overrides`` that are not None win over it."""
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
    """Parse a YAML text.

    A few lines of nested aliases (``b: [*a, *a]``) can expand to more values than
    memory holds. Such a text is refused before any value is built.

    Raises:
        yaml.YAMLError: It is not YAML, is too long or too deep, or its aliases expand
            too far or refer to themselves.
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
    """Return the number of values below a node; visit each node once."""
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
    """Parse ``KEY=VALUE`` texts whose values are YAML: ``learning_rate=1e-4``.

    Args:
        words: The texts; the last one of a key wins.
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
    """Return the environment variables as they were when this process started.

    Child processes get these. Variables set later, such as a user's keys on a remote
    machine, are then not in an environment that other processes can read. If the system
    does not report them, the current variables are returned.
    """
    try:
        begun = os.fsdecode(Path("/proc/self/environ").read_bytes()).split("\0")
    except OSError:
        return dict(os.environ)
    pairs = (line.partition("=") for line in begun)
    return {name: value for name, _, value in pairs if name in os.environ}


def explain_invalid(error: ValidationError, known: list[str]) -> str:
    """Return a message on each invalid setting; ``known`` are the valid names."""
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
