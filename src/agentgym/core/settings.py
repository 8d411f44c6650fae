"""Settings: declared once, read from code, YAML, options and variables.

A field that :func:`setting` declares has all that a setting needs: its default, its
limits, its description, and its option. Commands, the table in ``docs/cli.md`` and the
names of environment variables are made of the fields.
"""

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)
from pydantic.fields import FieldInfo

from agentgym.core.records import FrozenRecord, Record
from agentgym.errors import ConfigError, unreadable
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


def setting(
    default: Any,
    text: str,
    panel: str = "",
    *,
    option: str = "",
    metavar: str | None = None,
    may_change: bool = False,
    some_engines: bool = False,
    **limits: Any,
) -> Any:
    """Declare a field of a :class:`Settings` or a :class:`SettingsGroup`.

    Args:
        default: The value if none is given.
        text: Description. Its first sentence is the option's help.
        panel: Heading above the option in ``--help``, and above the table's row.
        option: The option's name, if it is not ``--`` and the setting's own name.
        metavar: The placeholder for the option's value.
        may_change: Whether the setting may change when a run is resumed.
        some_engines: Whether only engines that name it in ``supports`` read it.
        **limits: pydantic's, such as ``ge=1``.
    """
    noted: dict[str, Any] = {"panel": panel, "option": option, "metavar": metavar}
    noted |= {"may_change": may_change, "some_engines": some_engines}
    return Field(default, description=text, json_schema_extra=noted, **limits)


def about(field: FieldInfo, what: str) -> Any:
    """Return a note of :func:`setting` about a field, e.g. its ``metavar``."""
    noted = field.json_schema_extra
    return noted.get(what) if isinstance(noted, dict) else None


class SettingsGroup(FrozenRecord):
    """Base class of a group of settings, e.g. those of one plug-in.

    A plug-in registers a subclass under the entry point ``agentgym.settings``; its name
    there is the group's name in the settings. The plug-in reads it from a run's
    settings with :meth:`TrainingConfig.group`.

    Attributes:
        name: The group's name.
        main: The field that a value sets which is not a mapping, so that ``judge:
            openai:x`` is short for ``judge: {model: openai:x}``.
        further: The field, a mapping, that collects all other keys.
        may_change: Beginnings of keys in ``further`` that may change when a run is
            resumed.
    """

    model_config = ConfigDict(allow_inf_nan=False)

    name: ClassVar[str]
    main: ClassVar[str] = ""
    further: ClassVar[str] = ""
    may_change: ClassVar[tuple[str, ...]] = ("",)

    @classmethod
    def of(cls, settings: "Settings") -> Self:
        """Return this group of a run's settings."""
        found: Self = getattr(settings, cls.name)
        return found

    @classmethod
    def spread(cls, value: Any) -> dict[str, Any] | None:
        """Return the group's values by field; None if ``value`` holds none."""
        if isinstance(value, cls):
            return value.model_dump()
        if isinstance(value, Mapping):
            return dict(value)
        if value is None:
            return {}
        return {cls.main: value} if cls.main else None

    @model_validator(mode="before")
    @classmethod
    def _gather(cls, values: Any) -> Any:
        found = cls.spread(values)
        if found is None or not cls.further:
            return values if found is None else found
        own = {key: found.pop(key) for key in cls.model_fields if key in found}
        given = own.get(cls.further) or {}
        if found and isinstance(given, Mapping):
            own[cls.further] = {**given, **found}
        return own if not found or isinstance(given, Mapping) else {**own, **found}


class Settings(Record):
    """Base class of settings with clear error messages.

    The methods below raise :class:`~agentgym.errors.ConfigError` for a wrong value or
    an unknown key. The message has the key, its value and the expected values; for an
    unknown key, the nearest known key. The settings of a group have dotted names, as in
    ``judge.weight``; all methods take those as well as nested mappings.
    """

    @classmethod
    def create(cls, **values: Any) -> Self:
        """Build settings from ``values``; a value of None means the default."""
        return cls.restore(cls._given(cls.flat(values)))

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
        given = self.flat(self._given(changes))
        made = self.restore({**self.flat(self.model_dump()), **given})
        chosen = self.model_fields_set | {name.partition(".")[0] for name in given}
        made.model_fields_set.intersection_update(chosen)
        return made

    @classmethod
    def groups(cls) -> dict[str, type[SettingsGroup]]:
        """Return the groups of settings by name."""
        kinds = {name: field.annotation for name, field in cls.model_fields.items()}
        return {
            name: kind
            for name, kind in kinds.items()
            if isinstance(kind, type) and issubclass(kind, SettingsGroup)
        }

    @classmethod
    def fields(cls) -> dict[str, FieldInfo]:
        """Return the fields of all settings by dotted name; a base's come last."""
        groups, own = cls.groups(), cls.__annotations__
        found: dict[str, FieldInfo] = {}
        for name, field in sorted(
            cls.model_fields.items(), key=lambda each: each[0] not in own
        ):
            if name in groups:
                inner = groups[name].model_fields
                found |= {f"{name}.{key}": each for key, each in inner.items()}
            else:
                found[name] = field
        return found

    @classmethod
    def names(cls) -> list[str]:
        """Return the names of all settings, sorted: dotted ones, and groups'."""
        return sorted({*cls.fields(), *cls.groups()})

    @classmethod
    def flat(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return ``values`` with dotted names for the settings of groups.

        A group's unknown fields are kept, so that validation reports them.
        """
        groups = cls.groups()
        found: dict[str, Any] = {}
        for key, value in values.items():
            inner = groups[key].spread(value) if key in groups else None
            if inner is None:
                found[key] = value
            else:
                found |= {f"{key}.{name}": each for name, each in inner.items()}
        return found

    @classmethod
    def nested(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return ``values`` with a mapping for each group, instead of dotted names."""
        groups = cls.groups()
        found: dict[str, Any] = {}
        for key, value in cls.flat(values).items():
            group, dot, name = key.partition(".")
            if not dot or group not in groups:
                found[key] = value
            elif isinstance(parts := found.setdefault(group, {}), dict):
                parts[name] = value
        return found

    @classmethod
    def of_variables(cls) -> dict[str, Any]:
        """Return the settings in variables of the environment, as in AGENTGYM_SEED.

        Unknown variables keep their own name, so that validation reports them.
        """
        names = {variable_of(name): name for name in cls.names()}
        others = set(map(variable_of, OTHER_VARIABLES))
        found: dict[str, Any] = {}
        for variable, text in os.environ.items():
            if variable.upper().startswith(PREFIX) and variable.upper() not in others:
                value: Any = text
                if text.lstrip().startswith("{"):
                    with suppress(ValueError):  # validation reports other texts
                        value = json.loads(text)
                found[names.get(variable.upper(), variable)] = value
        return found

    @model_validator(mode="before")
    @classmethod
    def _nest(cls, values: Any) -> Any:
        return cls.nested(values) if isinstance(values, Mapping) else values

    @classmethod
    def from_yaml(cls, path: str | Path, **overrides: Any) -> Self:
        """Read settings from a YAML file; ``overrides`` win unless they are None."""
        from agentgym.core.yaml_text import read_yaml

        try:
            data = read_yaml(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigError(
                f"Cannot read the configuration {path}: {unreadable(error)}."
            ) from None
        if data is None:
            raise ConfigError(f"The configuration {path} is empty. {_YAML}")
        if not isinstance(data, dict):
            is_list = isinstance(data, list)
            kind = "a list" if is_list else f"the value {quoted(data, 40)}"
            raise ConfigError(f"The configuration {path} holds {kind}. {_YAML}")
        values = {str(key): value for key, value in data.items()}
        return cls.create(**{**cls.flat(values), **cls.flat(cls._given(overrides))})

    @classmethod
    def is_further(cls, name: str) -> bool:
        """Return whether a name is a library's, e.g. ``vllm.max_num_seqs``."""
        group, _, key = name.partition(".")
        kind = cls.groups().get(group)
        return bool(kind and kind.further and key and key not in kind.model_fields)

    @classmethod
    def _given(cls, values: Mapping[str, Any]) -> dict[str, Any]:
        """Leave out values of None; a library's setting may be None."""
        return {
            name: value
            for name, value in values.items()
            if value is not None or cls.is_further(name)
        }


def read_assignments(words: Sequence[str], kind: type[Settings]) -> dict[str, Any]:
    """Parse ``KEY=VALUE`` texts whose values are YAML: ``learning_rate=1e-4``."""
    from agentgym.core.yaml_text import read_yaml

    known, values = kind.names(), dict[str, Any]()
    for word in words:
        key, equals, text = word.partition("=")
        key = key.strip()
        key = key if kind.is_further(key) else key.replace("-", "_")
        if not equals or not key:
            raise ConfigError(
                f"{word!r} does not set anything: write KEY=VALUE, as in "
                "learning_rate=1e-4."
            )
        if key not in known and not kind.is_further(key):
            raise ConfigError(f"Invalid configuration: {_unknown(key, known)}")
        try:
            values[key] = read_yaml(text)
        except ValueError:
            raise ConfigError(f"{word!r}: the value cannot be read as YAML.") from None
    return values


def variable_of(setting: str) -> str:
    """Return the name of the environment variable that sets ``setting``."""
    return PREFIX + setting.upper().replace(".", "_")


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
    if not key.upper().startswith(PREFIX):
        word = key.replace(".", "_")
        same = [n for n in settings if n.replace(".", "_") == word]
        same = same or [n for n in settings if n.partition(".")[2] == key]
        alike = [name for name in settings if ("." in name) == ("." in key)]
        settings = same or alike or settings
        close = same or get_close_matches(key, settings, n=1)
        meant = " or ".join(map(repr, same or close))
        hint = f"did you mean {meant}?" if meant else f"known: {settings}"
        return f"unknown setting {key!r}, {hint}"
    variables = [variable_of(name) for name in (*settings, *OTHER_VARIABLES)]
    close = get_close_matches(key.upper(), variables, n=1, cutoff=0.8)
    hint = (
        f"did you mean {close[0]!r}?"
        if close
        else f"known: {PREFIX}<SETTING> for {settings}"
    )
    return f"unknown environment variable {key!r}, {hint}"
