"""Make up values that a JSON schema accepts."""

import math
import re
import string
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from random import Random
from typing import Any

from agentgym.core.json_schema import JsonSchema, found, resolved
from agentgym.errors import ScenarioError

_PRINTABLE = string.ascii_lowercase + string.digits + string.ascii_uppercase + " -_.,:/"
_CATEGORIES = {
    "CATEGORY_DIGIT": r"\d",
    "CATEGORY_NOT_DIGIT": r"\D",
    "CATEGORY_SPACE": r"\s",
    "CATEGORY_NOT_SPACE": r"\S",
    "CATEGORY_WORD": r"\w",
    "CATEGORY_NOT_WORD": r"\W",
}


def matching(pattern: str, rng: Random, longer: int) -> str | None:
    """Return a text that a pattern may match; None if it is not readable."""
    from re import _parser  # type: ignore[attr-defined]

    try:
        parsed = _parser.parse(pattern)
    except re.error:
        return None
    groups: dict[int, str] = {}
    return _written(parsed, rng, longer, groups)


def _written(parsed: Any, rng: Random, longer: int, groups: dict[int, str]) -> str:
    made = ""
    for operation, given in parsed:
        match str(operation):
            case "LITERAL":
                made += chr(given)
            case "NOT_LITERAL":
                made += next(each for each in _PRINTABLE if ord(each) != given)
            case "ANY":
                made += rng.choice(string.ascii_lowercase)
            case "IN":
                made += _one_of(given, rng)
            case "BRANCH":
                made += _written(rng.choice(given[1]), rng, longer, groups)
            case "SUBPATTERN":
                inner = _written(given[-1], rng, longer, groups)
                if given[0] is not None:
                    groups[given[0]] = inner
                made += inner
            case "ATOMIC_GROUP":
                made += _written(given, rng, longer, groups)
            case "GROUPREF":
                made += groups.get(given, "")
            case "MAX_REPEAT" | "MIN_REPEAT" | "POSSESSIVE_REPEAT":
                least, most, part = given
                count = rng.randint(least, min(int(most), least + longer))
                for _ in range(count):
                    made += _written(part, rng, longer, groups)
            case _:  # anchors and assertions; the value is validated
                pass
    return made


def _one_of(choices: Sequence[Any], rng: Random) -> str:
    """Return a character of a set, as Python's parser writes it."""
    negated = str(choices[0][0]) == "NEGATE"
    ranges: list[str] = []
    for operation, given in choices:
        match str(operation):
            case "LITERAL":
                ranges.append(chr(given))
            case "RANGE":
                low, high = given
                ranges.append("".join(map(chr, range(low, min(high, low + 100) + 1))))
            case "CATEGORY":
                kind = _CATEGORIES[str(given)]
                ranges.append("".join(c for c in _PRINTABLE if re.match(kind, c)))
            case _:
                pass
    if negated:
        left = [c for c in _PRINTABLE if not any(c in each for each in ranges)]
        return rng.choice(left or ["\u00e9"])
    return rng.choice(rng.choice([each for each in ranges if each]))


_ATTEMPTS = 60
_MOST_PARTS = 3000  # of one value, so that a schema that recurses for ever ends
_DEEP = 4  # below this depth, optional parts are left out
_COMBINED = ("allOf", "anyOf", "oneOf", "if", "then", "else", "$ref")
_LARGEST = ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties")
_SMALLEST = ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties")
_BY_KEYWORD = {
    "properties": "object", "required": "object", "additionalProperties": "object",
    "patternProperties": "object", "propertyNames": "object",
    "minProperties": "object", "maxProperties": "object", "dependentRequired": "object",
    "items": "array", "prefixItems": "array", "contains": "array",
    "minItems": "array", "maxItems": "array", "uniqueItems": "array",
    "minimum": "number", "maximum": "number", "multipleOf": "number",
    "exclusiveMinimum": "number", "exclusiveMaximum": "number",
}  # fmt: skip
_FORMATS: Mapping[str, Callable[[int], str]] = {
    "date": lambda n: f"2025-{1 + n % 12:02d}-{1 + n // 12 % 28:02d}",
    "date-time": lambda n: f"2025-{1 + n % 12:02d}-{1 + n // 12 % 28:02d}T09:30:00Z",
    "time": lambda n: f"09:{n % 60:02d}:00Z",
    "duration": lambda n: f"P{1 + n % 30}D",
    "email": lambda n: f"person{n}@example.com",
    "uri": lambda n: f"https://example.com/{n}",
    "url": lambda n: f"https://example.com/{n}",
    "hostname": lambda n: f"host{n}.example.com",
    "ipv4": lambda n: f"192.0.2.{n % 256}",
    "ipv6": lambda n: f"2001:db8::{n:x}",
    "uuid": lambda n: f"00000000-0000-4000-8000-{n:012d}",
}


class NoValueError(ScenarioError):
    """No value could be made up that a JSON schema accepts."""


class _TooLarge(Exception):
    """A made-up value has too many parts."""


def made_up(
    schema: Any,
    seed: str,
    *,
    name: str = "",
    optional: float = 0.0,
    known: Mapping[str, Any] | None = None,
    texts: Sequence[str] = (),
    numbers: Sequence[int] = (),
    accepts: Callable[[Any], bool] = lambda value: True,
) -> Any:
    """Return a value that a JSON schema accepts; equal seeds give equal values.

    ``optional`` is the probability of each optional part. An inner part named in
    ``known`` has that value if it may.
    """
    judge = JsonSchema(schema if isinstance(schema, Mapping) else resolved(schema, {}))
    for attempt in range(_ATTEMPTS):
        rng = Random(f"{seed}/{attempt}")
        maker = _Maker(judge, rng, attempt, optional, known or {}, texts, numbers)
        try:
            value = maker.value(judge.root, name, 0)
        except (_TooLarge, RecursionError):
            continue
        if judge.is_valid(value) and accepts(value):
            return value
    raise NoValueError(f"No value could be made up for {name or 'a schema'!r}.")


@dataclass
class _Maker:
    """One attempt to make up a value. The first attempt makes the plainest one."""

    judge: JsonSchema
    rng: Random
    attempt: int
    optional: float
    known: Mapping[str, Any]
    texts: Sequence[str]
    numbers: Sequence[int]
    parts: int = field(default=0, init=False)

    def value(self, part: Any, name: str, depth: int) -> Any:
        """Make up a value of a part of the schema."""
        self.parts += 1
        if self.parts > _MOST_PARTS:
            raise _TooLarge
        if depth and name in self.known and self._fits(self.known[name], part):
            return self.known[name]
        schema = self._flat(part, depth)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            fitting = [each for each in schema["enum"] if self._fits(each, part)]
            return self.rng.choice(fitting) if fitting else None
        shown = [*(schema.get("examples") or ()), schema.get("default")]
        if self.attempt % 4 == 3 and self.rng.random() < 0.5:
            for each in shown:
                if each is not None and self._fits(each, part):
                    return each
        match self._type_of(schema):
            case "boolean":
                return self.rng.random() < 0.5
            case "integer" | "number" as kind:
                return self._number(schema, whole=kind == "integer")
            case "array":
                return self._list(schema, name, depth)
            case "object":
                return self._object(schema, depth)
            case "null":
                return None
            case _:
                return self._text(schema, name)

    def _fits(self, value: Any, part: Any) -> bool:
        return self.judge.is_valid(value, part)

    def _flat(self, part: Any, depth: int, following: int = 0) -> dict[str, Any]:
        """Return a schema without references and branches, of which some are chosen."""
        if not isinstance(part, Mapping) or following > 30:
            return resolved(part, {})
        made = {key: each for key, each in part.items() if key not in _COMBINED}
        inner = []
        if "$ref" in part:
            inner.append(resolved({"$ref": part["$ref"]}, self.judge.root))
        inner += part.get("allOf") or ()
        for key in ("anyOf", "oneOf"):
            if options := [each for each in part.get(key) or () if each is not False]:
                inner.append(self._option(options, depth))
        if "if" in part:
            met = self.attempt % 2 == 0
            inner += (
                [part["if"], part.get("then", {})] if met else [part.get("else", {})]
            )
        for each in inner:
            made = _merged(made, self._flat(each, depth, following + 1))
        return made

    def _option(self, options: Sequence[Any], depth: int) -> Any:
        if depth > _DEEP or self.attempt % 4 == 1:
            plain = [each for each in options if "$ref" not in repr(each)]
            options = plain or options
        return options[0] if self.attempt == 0 else self.rng.choice(options)

    def _type_of(self, schema: Mapping[str, Any]) -> str:
        types = schema.get("type")
        if types is None:
            kinds = (kind for key, kind in _BY_KEYWORD.items() if key in schema)
            return next(kinds, "string")
        names = [types] if isinstance(types, str) else list(types)
        other = [each for each in names if each != "null"] or ["null"]
        if self.attempt == 0:
            return str(other[0])
        return str(self.rng.choice(names if self.attempt % 3 == 2 else other))

    def _number(self, schema: Mapping[str, Any], *, whole: bool) -> int | float:
        low, low_open = _bound(schema, "minimum", "exclusiveMinimum", max)
        high, high_open = _bound(schema, "maximum", "exclusiveMaximum", min)
        step = Fraction(str(schema.get("multipleOf", 1)))
        if whole and step.denominator > 1:
            step = Fraction(step.numerator)
        start = low
        if start is None:
            start = Fraction(1) if high is None or high > 1 else high - 100
        first = math.ceil(start / step)
        if low is not None and low_open and first * step == low:
            first += 1
        last = first + 99 if high is None else math.floor(high / step)
        if high_open and last * step == high:
            last -= 1
        fitting = [n for n in self.numbers if first <= Fraction(n) / step <= last]
        fitting = [n for n in fitting if (Fraction(n) / step).denominator == 1]
        if fitting:
            return self.rng.choice(fitting)
        if first <= last:
            many = last if self.attempt > 5 else min(last, first + 99)
            found = step * self.rng.randint(first, many)
        elif whole or high is None or low is None:
            return int(first * step)
        else:  # no whole number is between
            found = low + (high - low) * Fraction(self.rng.randint(1, 9), 10)
            found = low if low == high else found
        return int(found) if found.denominator == 1 else float(found)

    def _text(self, schema: Mapping[str, Any], name: str) -> str:
        number = self.rng.randrange(9000)
        least, most = schema.get("minLength", 0), schema.get("maxLength")
        if isinstance(pattern := schema.get("pattern"), str):
            longer = 0 if self.attempt % 2 else 2 + self.rng.choice((0, least))
            if (text := matching(pattern, self.rng, longer)) is not None:
                if pattern.endswith("$"):
                    return text
                more = str(number) if self.attempt % 2 else ""
                return (text + more).ljust(least, "x")[: None if longer else most]
        if (form := _FORMATS.get(schema.get("format", ""))) is not None:
            return form(number)
        if self.texts:
            text = self.rng.choice(self.texts)[:most]
        else:
            text = f"{name or 'value'}-{1000 + number}"
            text = text if most is None else text[len(text) - min(most, len(text)) :]
        return text.ljust(least, "x")

    def _list(self, schema: Mapping[str, Any], name: str, depth: int) -> list[Any]:
        items = schema.get("items", True)
        first = schema.get("prefixItems", items if isinstance(items, list) else [])
        rest = schema.get("additionalItems", True) if isinstance(items, list) else items
        deep = depth > _DEEP or self.attempt % 4 == 1
        least, most = schema.get("minItems", 0), schema.get("maxItems", math.inf)
        usual = len(first) or (0 if deep or rest is False else 1)
        count = max(least, min(usual, most))
        made: list[Any] = []
        contained: list[Any] = []
        if (wanted := schema.get("contains")) is not None:
            for _ in range(schema.get("minContains", 1)):
                contained.append(self.value(wanted, name, depth + 1))
        while len(made) + len(contained) < count:
            part = first[len(made)] if len(made) < len(first) else rest
            each = self.value(part, name, depth + 1)
            for _ in range(20 if schema.get("uniqueItems") else 0):
                if each not in made + contained:
                    break
                each = self.value(part, name, depth + 1)
            made.append(each)
        return made + contained

    def _object(self, schema: Mapping[str, Any], depth: int) -> dict[str, Any]:
        named = schema.get("properties") or {}
        required = list(schema.get("required") or ())
        most = schema.get("maxProperties", math.inf)
        chosen = list(dict.fromkeys([*required, *self._optional(named, depth)]))
        chosen = chosen[: max(most, len(required))] if most < math.inf else chosen
        needed = schema.get("dependentRequired") or schema.get("dependencies") or {}
        for each in chosen:  # grows while it is read
            more = needed.get(each)
            chosen += [
                n for n in more or () if n not in chosen and isinstance(more, list)
            ]
        for each, inner in (schema.get("dependentSchemas") or {}).items():
            if each in chosen:
                left = {k: v for k, v in schema.items() if k != "dependentSchemas"}
                return self._object(_merged(left, self._flat(inner, depth)), depth)
        open_ended = isinstance(schema.get("additionalProperties"), Mapping)
        invented = schema.get("minProperties", 0)
        if open_ended and not named and depth <= _DEEP and self.attempt % 4 != 1:
            invented = max(invented, min(1, most))
        spare = [each for each in named if each not in chosen]
        for _ in range(50):
            if len(chosen) >= invented:
                break
            new = spare.pop(0) if spare else self._new_name(schema)
            chosen += [new] if new not in chosen else []
        order = [
            *(n for n in named if n in chosen),
            *(n for n in chosen if n not in named),
        ]
        return {
            each: self.value(self._part_of(schema, each), each, depth + 1)
            for each in order
        }

    def _optional(self, named: Mapping[str, Any], depth: int) -> list[str]:
        if depth > _DEEP:
            return []
        if depth == 0 and self.attempt < 10:
            share = self.optional
        else:
            share = (1.0, 0.0, 0.5)[self.attempt % 3]
        return [
            name
            for name, part in named.items()
            if part is not False and self.rng.random() < share
        ]

    def _new_name(self, schema: Mapping[str, Any]) -> str:
        patterns = list(schema.get("patternProperties") or {})
        if patterns and self.attempt % 2 == 0:
            found = matching(self.rng.choice(patterns), self.rng, 2)
            if found is not None:
                return found
        rule = resolved(schema.get("propertyNames"), self.judge.root)
        return str(self.value({"type": "string", **rule}, "name", 1))

    def _part_of(self, schema: Mapping[str, Any], name: str) -> Any:
        parts = []
        if name in (schema.get("properties") or {}):
            parts.append(schema["properties"][name])
        for pattern, part in (schema.get("patternProperties") or {}).items():
            if found(pattern, name):
                parts.append(part)
        if not parts:
            return schema.get("additionalProperties", True)
        return parts[0] if len(parts) == 1 else {"allOf": parts}


def _bound(
    schema: Mapping[str, Any], closed: str, opened: str, tighter: Callable[..., Any]
) -> tuple[Fraction | None, bool]:
    """Return a limit of a number, None without one, and whether it is excluded."""
    limits = [
        (Fraction(str(schema[key])), key == opened)
        for key in (closed, opened)
        if isinstance(schema.get(key), int | float)
        and not isinstance(schema[key], bool)
    ]
    if not limits:
        return None, False
    limit = tighter(value for value, _ in limits)
    return limit, any(is_open for value, is_open in limits if value == limit)


def _merged(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Return a schema for values that two schemas without branches accept."""
    made = {**one, **other}
    for key in one.keys() & other.keys():
        mine, theirs = one[key], other[key]
        if key in _LARGEST:
            made[key] = max(mine, theirs)
        elif key in _SMALLEST:
            made[key] = min(mine, theirs)
        elif key == "required":
            made[key] = list(dict.fromkeys([*mine, *theirs]))
        elif key == "enum":
            made[key] = [each for each in mine if each in theirs]
        elif key == "type":
            made[key] = _both(mine, theirs)
        elif key in ("properties", "patternProperties"):
            made[key] = {**mine, **theirs}
            for name in mine.keys() & theirs.keys():
                made[key][name] = {"allOf": [mine[name], theirs[name]]}
        elif key in ("items", "additionalProperties", "propertyNames"):
            made[key] = mine if mine == theirs else {"allOf": [mine, theirs]}
            if mine is False or theirs is False:
                made[key] = False
        elif key == "multipleOf":
            a, b = Fraction(str(mine)), Fraction(str(theirs))
            both = Fraction(
                math.lcm(a.numerator, b.numerator),
                math.gcd(a.denominator, b.denominator),
            )
            made[key] = int(both) if both.denominator == 1 else float(both)
        elif key == "not":
            made[key] = {"anyOf": [mine, theirs]}
    return made


def _both(mine: Any, theirs: Any) -> list[str]:
    """Return the types that two values of the keyword ``type`` both allow."""
    one = [mine] if isinstance(mine, str) else list(mine)
    other = [theirs] if isinstance(theirs, str) else list(theirs)
    both = [each for each in one if each in other]
    if ("integer" in one and "number" in other) or (
        "number" in one and "integer" in other
    ):
        both.append("integer")
    return both or other
