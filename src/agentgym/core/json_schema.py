"""Read JSON schemas: references, validation of values, and equality of values."""

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from functools import cache, cached_property
from typing import Any, ClassVar
from uuid import UUID

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

_NAMED = (
    *("properties", "patternProperties", "$defs", "definitions", "dependentSchemas"),
)
_SEVERAL = ("anyOf", "oneOf", "allOf", "prefixItems", "items")
_SINGLE = (
    *("items", "additionalItems", "additionalProperties", "unevaluatedProperties"),
    *("unevaluatedItems", "contains", "propertyNames", "not", "if", "then", "else"),
)
_OF_VALUES = ("type", "enum", "const", "$ref", "allOf", "anyOf", "oneOf")
_BY_PATTERN = ("pattern", "patternProperties", "additionalProperties")
_MOST_NESTED = 60
_CONVERTED: Mapping[str, type] = {"integer": int, "number": float, "boolean": bool}
_FORMATS: Mapping[str, type] = {
    "date": date,
    "date-time": datetime,
    "time": time,
    "duration": timedelta,
    "uuid": UUID,
}


@cache
def _reader(kind: type) -> TypeAdapter[Any]:
    return TypeAdapter(kind)


def with_parts(schema: Any, change: Callable[[Any], Any]) -> Any:
    """Return a JSON schema in which ``change`` was applied to each direct subschema."""
    # Values in default, const, enum and examples are not schemas.
    if not isinstance(schema, Mapping):
        return schema
    made = dict(schema)
    for key, value in schema.items():
        if key in _NAMED and isinstance(value, Mapping):
            made[key] = {name: change(part) for name, part in value.items()}
        elif key in _SEVERAL and isinstance(value, list):
            made[key] = [change(part) for part in value]
        elif key in _SINGLE and isinstance(value, Mapping | bool):
            made[key] = change(value)
    return made


def referred(reference: str, root: Any) -> Any:
    """Return the part of ``root`` that a ``$ref`` names.

    None if missing. Never download.
    """
    from referencing import Registry, Resource
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012

    if not isinstance(root, Mapping):
        return None
    resource = Resource.from_contents(root, default_specification=DRAFT202012)
    try:
        return Registry().resolver_with_root(resource).lookup(reference).contents
    except (Unresolvable, ValueError, TypeError, AttributeError):
        return None


def resolved(schema: Any, root: Any) -> dict[str, Any]:
    """Return a subschema as an object, merged with the schema that its ``$ref`` names.

    ``True`` becomes ``{}``, and ``False`` ``{"not": {}}``.
    """
    for _ in range(_MOST_NESTED):
        if schema is False:
            return {"not": {}}
        if not isinstance(schema, Mapping):
            return {}
        if not isinstance(reference := schema.get("$ref"), str):
            return dict(schema)
        beside = {key: value for key, value in schema.items() if key != "$ref"}
        found = referred(reference, root)
        schema = {**found, **beside} if isinstance(found, Mapping) else found
    return {}


def properties(schema: Any) -> dict[str, dict[str, Any]]:
    """Return the arguments that a tool's schema names, each with its own schema."""
    whole = resolved(schema, schema)
    named = whole.get("properties")
    if not isinstance(named, Mapping):
        return {}
    return {name: resolved(part, schema) for name, part in named.items()}


def equal(one: Any, other: Any) -> bool:
    """Return whether two values are equal; unlike in Python, ``True`` is not ``1``."""
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        same = one.keys() == other.keys()
        return same and all(equal(value, other[key]) for key, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(equal, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)


class JsonSchema:
    """A JSON schema, for validation and for comparing values."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self.root = root

    def check(self) -> None:
        """Check the schema itself."""
        from jsonschema import FormatChecker
        from referencing.exceptions import Unresolvable

        # patterns are JavaScript's, which Python may be unable to compile
        type(self._strict).check_schema(self.root, format_checker=FormatChecker(()))
        for reference in _references(self.root):
            if referred(reference, self.root) is None:
                raise Unresolvable(ref=reference)

    def errors(self, value: Any) -> list[Any]:
        """Return jsonschema's errors of a value; ``"7"`` is accepted for a number."""
        from jsonschema.exceptions import UnknownType
        from referencing.exceptions import Unresolvable

        try:
            return list(self._strict.iter_errors(self.read(value, fill=False)))
        except (UnknownType, Unresolvable, RecursionError):
            return []

    def best_error(self, value: Any) -> Any:
        """Return the error that explains best why a value is refused, or None."""
        from jsonschema.exceptions import best_match

        return best_match(iter(self.errors(value)))

    def is_valid(self, value: Any, part: Any = None) -> bool:
        """Return whether a value is accepted as it is, by the schema or a part."""
        from jsonschema.exceptions import UnknownType
        from referencing.exceptions import Unresolvable

        judge = self._strict if part is None else self._strict.evolve(schema=part)
        try:
            return bool(judge.is_valid(value))
        except (UnknownType, Unresolvable, RecursionError):
            return False

    def read(self, value: Any, *, fill: bool = True) -> Any:
        """Return a value as a tool reads it, with defaults if ``fill`` is true."""
        return self._read(self.root, value, fill, 0)

    @cached_property
    def _strict(self) -> Any:
        from jsonschema.validators import Draft202012Validator, validator_for
        from referencing import Registry

        base = validator_for(self.root, default=Draft202012Validator)
        return _readable(base)(self.root, registry=Registry())

    def _read(self, part: Any, value: Any, fill: bool, depth: int) -> Any:
        schema = resolved(part, self.root)
        if depth > _MOST_NESTED or not schema:
            return value
        value = _converted(schema, value)
        for each in schema.get("allOf") or ():
            value = self._read(each, value, fill, depth + 1)
        for keyword in ("anyOf", "oneOf"):
            if branches := schema.get(keyword):
                value = self._read_one(branches, value, fill, depth)
        if "if" in schema:
            met = "then" if self.is_valid(value, schema["if"]) else "else"
            value = self._read(schema.get(met, True), value, fill, depth + 1)
        if isinstance(value, Mapping):
            return self._read_object(schema, value, fill, depth)
        if isinstance(value, list):
            return self._read_list(schema, value, fill, depth)
        kind = _FORMATS.get(schema.get("format", "")) if fill else None
        if kind is not None and isinstance(value, str):
            written = _reader(kind)
            try:
                return written.dump_python(written.validate_python(value), mode="json")
            except ValidationError:
                return value
        return value

    def _read_one(self, branches: list[Any], value: Any, fill: bool, depth: int) -> Any:
        """Read a value by the first branch that accepts it, at best as it is."""
        if not any(self.is_valid(value, each) for each in branches):
            tried = (self._read(each, value, False, depth + 1) for each in branches)
            fits = (
                made
                for each, made in zip(branches, tried, strict=True)
                if self.is_valid(made, each)
            )
            value = next(fits, value)
        for each in branches:
            if self.is_valid(value, each):
                return self._read(each, value, fill, depth + 1)
        return value

    def _read_object(
        self,
        schema: Mapping[str, Any],
        value: Mapping[str, Any],
        fill: bool,
        depth: int,
    ) -> dict[str, Any]:
        named = schema.get("properties") or {}
        patterns = schema.get("patternProperties") or {}
        rest = schema.get("additionalProperties", True)

        def part_of(name: str) -> Any:
            if name in named:
                return named[name]
            return next((s for p, s in patterns.items() if found(p, name)), rest)

        made = {
            name: self._read(part_of(name), each, fill, depth + 1)
            for name, each in value.items()
        }
        if not fill:
            return made
        for name, part in named.items():
            inner = resolved(part, self.root)
            if "default" in inner:
                if name not in made:
                    made[name] = self._read(part, inner["default"], fill, depth + 1)
            elif made.get(name, ...) is None and name not in _required(schema):
                del made[name]
        return made

    def _read_list(
        self, schema: Mapping[str, Any], value: list[Any], fill: bool, depth: int
    ) -> list[Any]:
        items = schema.get("items", True)
        first = schema.get("prefixItems", items if isinstance(items, list) else [])
        rest = schema.get("additionalItems", True) if isinstance(items, list) else items
        return [
            self._read(first[n] if n < len(first) else rest, each, fill, depth + 1)
            for n, each in enumerate(value)
        ]


class SchemaArguments(BaseModel):
    """Arguments of a tool known only by its schema; its framework converts them."""

    model_config = ConfigDict(extra="allow", defer_build=True)
    json_schema: ClassVar[JsonSchema]

    @classmethod
    def as_read(cls, arguments: dict[str, Any]) -> dict[str, Any]:
        """Return valid arguments as the tool reads them."""
        return dict(cls.json_schema.read(arguments))


def _references(schema: Any) -> Iterator[str]:
    if not isinstance(schema, Mapping):
        return
    if isinstance(found := schema.get("$ref"), str):
        yield found
    parts: list[Any] = []
    with_parts(schema, lambda part: parts.append(part))
    for part in parts:
        yield from _references(part)


def _converted(schema: Mapping[str, Any], value: Any) -> Any:
    """Return a value with pydantic's conversion if none of the types is its own."""
    types = schema.get("type")
    names = [types] if isinstance(types, str) else types or ()
    if any(_is_of_type(value, name) for name in names):
        return value
    for name in names:
        if name in _CONVERTED and not isinstance(value, list | Mapping):
            try:
                return _reader(_CONVERTED[name]).validate_python(value)
            except ValidationError:
                continue
    return value


def _is_of_type(value: Any, name: str) -> bool:
    match name:
        case "boolean":
            return isinstance(value, bool)
        case "integer" | "number":
            kind = int if name == "integer" else (int, float)
            return isinstance(value, kind) and not isinstance(value, bool)
        case "string":
            return isinstance(value, str)
        case "null":
            return value is None
        case "array":
            return isinstance(value, list)
        case _:
            return isinstance(value, Mapping)


def found(pattern: str, text: str) -> bool:
    """Return whether a regular expression matches; Python may not know its syntax."""
    try:
        return re.search(pattern, text) is not None
    except re.error:
        return False


def _required(schema: Mapping[str, Any]) -> list[str]:
    """Return the properties that may not be left out.

    OpenAI's strict mode lists all as required, also those with a default or null.
    """
    names: list[str] = schema.get("required") or []
    named = schema.get("properties") or {}
    if schema.get("additionalProperties") is not False or named.keys() != set(names):
        return names
    return [name for name in names if not _may_be_absent(named[name])]


def _may_be_absent(part: Any) -> bool:
    if not isinstance(part, Mapping):
        return False
    kinds = [part, *(part.get("anyOf") or ())]
    types = [kind.get("type") for kind in kinds if isinstance(kind, Mapping)]
    return "default" in part or any("null" in (each or ()) for each in types)


@cache
def _readable(base: Any) -> Any:
    """Return a validator that skips unreadable patterns and knows ``nullable``."""
    from jsonschema.validators import extend

    known = base.VALIDATORS

    def required(validator: Any, _: Any, value: Any, schema: Any) -> Iterator[Any]:
        yield from known["required"](validator, _required(schema), value, schema) or ()

    made = {k: _or_null(known[k]) for k in _OF_VALUES if k in known}
    made["required"] = required
    made |= {k: _only_readable(known[k]) for k in _BY_PATTERN}
    return extend(base, made)


def _or_null(judge: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    """Return a validator that accepts null where the schema is ``nullable``."""

    def judged(
        validator: Any, rule: Any, value: Any, schema: Mapping[str, Any]
    ) -> Iterator[Any]:
        if value is not None or schema.get("nullable") is not True:
            yield from judge(validator, rule, value, schema) or ()

    return judged


def _only_readable(judge: Callable[..., Iterator[Any]]) -> Callable[..., Iterator[Any]]:
    """Return a validator that accepts values where Python cannot read the pattern."""

    def judged(*given: Any) -> Iterator[Any]:
        try:
            yield from judge(*given) or ()
        except re.error:
            return

    return judged
