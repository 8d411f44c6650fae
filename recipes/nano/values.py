"""Random values of the corpus: ids, names, paths, code, texts, by kind."""

import json
import random
import re
from collections.abc import Callable
from functools import cache
from typing import Any

from agentgym.models.nano import nano_path
from recipes.nano import pools
from recipes.nano.tokenizer import common_words, pseudo_words

PSEUDO = tuple(sorted(set(pseudo_words(7, 6000))))
SOURCES = tuple(common_words())
CAPITALS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def value(rng: random.Random, kind: str) -> Any:
    """Return a random value of ``kind``, e.g. ``"path"`` or ``"enum:a,b"``."""
    if kind.startswith("enum:"):
        return rng.choice(kind[5:].split(","))
    return _MAKERS[kind](rng)


def word(rng: random.Random) -> str:
    """Return a plain, a code, an invented, a spliced or a woven word."""
    kind = rng.random()
    if kind < 0.25:
        made = spliced(rng)
        return woven(made) if kind < 0.2 else made
    if kind < 0.5:
        return rng.choice(PSEUDO)
    return rng.choice(pools.PLAIN if kind < 0.75 else pools.CODE_WORDS)


def spliced(rng: random.Random) -> str:
    """Return pieces of known words joined at random.

    Every piece of the vocabulary then occurs where only copying helps, so that names
    made of rare pieces can be copied too.
    """
    made = ""
    for _ in range(rng.choice((1, 2, 2, 3))):
        source = rng.choice(SOURCES)
        start = rng.randrange(max(1, len(source) - 1))
        made += source[start : start + rng.randint(2, 5)]
    return made if len(made) > 2 else made + rng.choice(PSEUDO)[:3]


@cache
def pieces() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the shipped vocabulary's single letters and its longer pieces of words."""
    tokenizer = json.loads((nano_path() / "tokenizer.json").read_text())
    lower = [
        p for p in sorted(tokenizer["model"]["vocab"]) if re.fullmatch("[a-z]+", p)
    ]
    return (
        tuple(p for p in lower if len(p) == 1),
        tuple(p for p in lower if 2 <= len(p) <= 4),
    )


def woven(source: str, like: str = "") -> str:
    """Return three or four random pieces of the vocabulary in a row.

    A name that nobody has seen is a row of pieces which never stood side by side, and
    often begins as another word does ("out", "outpost"). Copied right, it has to be
    read to its end. With three pieces hardly any is a real name by chance.

    Args:
        source: The word that it stands for. The choice depends on the arguments alone,
            so that what else a conversation draws does not depend on its names.
        like: A word whose beginning the new one shares, instead of its first pieces.
    """
    rng = random.Random(source)
    letters, longer = pieces()
    made = like[: rng.randint(2, max(2, len(like) - 2))]
    count = rng.choice((1, 2, 2, 3) if made else (3, 3, 3, 4))
    for _ in range(count):
        made += rng.choice(letters if rng.random() < 0.25 else longer)
    return made


def ident(rng: random.Random) -> str:
    """Return an identifier of one to three parts."""
    parts = [word(rng) for _ in range(rng.choice((1, 2, 2, 2, 3)))]
    style = rng.random()
    if style < 0.85:
        return "_".join(parts)
    if style < 0.95:
        return "".join(p.capitalize() for p in parts)
    return "-".join(parts)


def path(rng: random.Random) -> str:
    """Return a file path of one to three parts."""
    parts = [stem(rng) for _ in range(rng.choice((1, 2, 2, 3)))]
    if rng.random() < 0.2:
        parts[-1] = f"test_{parts[-1]}"
    if rng.random() < 0.25:
        parts.insert(0, rng.choice(("src", "tests", "docs", "lib", "data", "scripts")))
    extension = "py" if rng.random() < 0.6 else rng.choice(pools.EXTENSIONS)
    return "/".join(parts) + "." + extension


def stem(rng: random.Random) -> str:
    """Return a file or folder name without its extension."""
    return word(rng) if rng.random() < 0.7 else f"{word(rng)}_{word(rng)}"


def prefixed(rng: random.Random) -> str:
    """Return an id such as ``ord_4821``."""
    digits = "".join(rng.choice("0123456789") for _ in range(rng.randint(2, 5)))
    style = rng.randrange(5)
    if style == 0:
        return rng.choice(CAPITALS) + "-" + digits
    if style == 1:
        return "".join(rng.choices(CAPITALS, k=rng.randint(2, 3))) + "-" + digits
    if style == 2:
        return rng.choice(PSEUDO)[:4] + "_" + digits
    if style == 3:
        return rng.choice(CAPITALS) + digits
    return word(rng)[:3] + "-" + digits


def person(rng: random.Random) -> str:
    """Return a full name."""
    return f"{rng.choice(pools.FIRST_NAMES)} {surname(rng)}"


def surname(rng: random.Random) -> str:
    """Return a surname; a third of them are invented."""
    if rng.random() < 0.65:
        return rng.choice(pools.LAST_NAMES)
    return rng.choice(PSEUDO).capitalize()


def email(rng: random.Random) -> str:
    """Return a mail address."""
    first = rng.choice((rng.choice(pools.FIRST_NAMES).lower(), word(rng)))
    last = rng.choice(
        (f".{surname(rng).lower()}", f"_{word(rng)}", str(rng.randint(1, 99)), "")
    )
    ending = rng.choice(("com", "org", "net", "io", "de"))
    return f"{first}{last}@{word(rng)}.{ending}"


def text(rng: random.Random) -> str:
    """Return a short free text."""
    kind = rng.random()
    if kind < 0.3:
        return rng.choice(pools.REASONS)
    count = rng.choice((1, 2, 2, 3, 4))
    pool = [
        word(rng) if rng.random() < 0.5 else rng.choice(pools.EXTRA_WORDS)
        for _ in range(count)
    ]
    made = " ".join(pool)
    return made.capitalize() if rng.random() < 0.3 else made


def number(rng: random.Random) -> int:
    """Return a whole number, mostly small."""
    return rng.choice((rng.randint(1, 12), rng.randint(1, 99), rng.randint(100, 5000)))


def amount(rng: random.Random) -> float:
    """Return an amount with at most two decimals."""
    return round(rng.uniform(1, rng.choice((20, 200, 900))), rng.choice((1, 2)))


def code_line(rng: random.Random, names: list[str] | None = None) -> str:
    """Return one line of Python."""
    pick: Callable[[], str] = lambda: rng.choice(names) if names else ident(rng)  # noqa: E731
    op = rng.choice(("+", "-", "*", "/", "//", "%"))
    compare = rng.choice(("<", ">", "<=", ">=", "==", "!="))
    n = rng.randint(0, 99)
    made = (
        f"return {pick()} {op} {pick()}",
        f"{pick()} = {pick()} {op} {n}",
        f"{pick()} = {n}",
        f"{word(rng).upper()} = {n}",
        f'{word(rng).upper()} = "{word(rng)}"',
        f"if {pick()} {compare} {pick()}:",
        f"if {pick()} {compare} {n}:",
        f"return {pick()}({pick()}, {n})",
        f"return {pick()}[{n % 5}]",
        f"for {pick()} in {pick()}:",
        f"return {pick()}",
        f"{pick()} += {pick()}",
        f'return "{word(rng)}"',
        f"return [{pick()} for x in {pick()}]",
        f"import {word(rng)}",
        f"def {pick()}({pick()}):",
        f"return max({pick()}, {pick()})",
        f"return round({pick()} {op} {pick()}, {n % 4})",
        f"{pick()}.append({pick()})",
        f"assert {pick()}({n}) == {n * 2}",
        f"# {text(rng)}",
    )
    return rng.choice(made)


def module(rng: random.Random) -> list[str]:
    """Return the lines of a small Python module, or of a plain list of settings."""
    if rng.random() < 0.3:
        return [
            f"{ident(rng)}{rng.choice((': ', ' = ', '='))}{rng.choice((str(number(rng)), word(rng)))}"
            for _ in range(rng.randint(2, 6))
        ]
    lines = [f'"""{text(rng).capitalize()}."""', ""] if rng.random() < 0.4 else []
    if rng.random() < 0.4:
        lines += [
            code_line(rng)
            if rng.random() < 0.3
            else f"{word(rng).upper()} = {number(rng)}",
            "",
        ]
    for _ in range(rng.choice((1, 1, 2))):
        names = [word(rng) for _ in range(3)]
        lines.append(f"def {ident(rng)}({', '.join(names[: rng.randint(1, 3)])}):")
        for _ in range(rng.choice((1, 1, 2, 3))):
            line = code_line(rng, names)
            lines.append("    " + line)
            if line.endswith(":"):
                lines.append("        " + code_line(rng, names))
        lines += ["", ""] if rng.random() < 0.5 else [""]
    return lines[:-1] if lines[-1] == "" else lines


_MAKERS: dict[str, Callable[[random.Random], Any]] = {
    "id": prefixed,
    "num": lambda rng: str(rng.randint(10, 99999)),
    "int": number,
    "float": amount,
    "person": person,
    "email": email,
    "path": path,
    "dir": lambda rng: "/".join(stem(rng) for _ in range(rng.choice((1, 1, 2)))),
    "ident": ident,
    "word": word,
    "text": text,
    "title": lambda rng: " ".join(
        word(rng) for _ in range(rng.choice((1, 2, 2)))
    ).capitalize(),
    "name": lambda rng: rng.choice(
        (word(rng).capitalize(), f"{word(rng)} {rng.randint(1, 9)}")
    ),
    "code": lambda rng: (
        "".join(rng.choices(CAPITALS, k=2)) + str(rng.randint(10, 9999))
    ),
    "hash": lambda rng: "".join(rng.choices("0123456789abcdef", k=7)),
    "host": lambda rng: (
        f"{word(rng)}-{rng.randint(1, 20)}" + rng.choice(("", ".local", ".net"))
    ),
    "date": lambda rng: (
        f"20{rng.randint(24, 29)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"
    ),
    "time": lambda rng: (
        f"{rng.randint(0, 23):02}:{rng.choice(('00', '15', '30', '45'))}"
    ),
    "city": lambda rng: rng.choice(pools.CITIES),
    "phone": lambda rng: "0" + "".join(rng.choices("0123456789", k=rng.randint(5, 9))),
    "version": lambda rng: (
        f"{rng.randint(0, 9)}.{rng.randint(0, 20)}" + rng.choice(("", ".1", ".2"))
    ),
}
