"""Make up texts that a regular expression matches."""

import re
import string
from collections.abc import Sequence
from random import Random
from typing import Any

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
    """Return a text that a regular expression may match; None if it is not readable.

    Repeated parts get up to ``longer`` repetitions more than their least.
    """
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
