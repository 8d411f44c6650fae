"""Plants: pieces of code with one defect each, to add to a module.

A plant is a function with its imports, or only an import. In its text, ``>`` starts the
line with the defect, ``{f}`` is the function's name, ``{a}`` and ``{b}`` are its
parameters, and ``{g}`` is another name. The tool ``lint`` finds each defect at this
line. Each plant belongs to one split.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

from agentgym.core.task import Split

PlantKind = Literal["bug", "security", "style"]


@dataclass(frozen=True)
class Plant:
    """A piece of code with one defect, which can be added to a module.

    Attributes:
        kind: The agent must report ``bug`` and ``security``, but not ``style``.
        split: The split whose tasks use the plant. Tasks of ``OUT_OF_VOCABULARY`` use
            the plants of ``TEST``.
        imports: Import lines that the code needs; one of them may be the defect.
        body: Lines of a function; empty if an import is the defect.
    """

    kind: PlantKind
    split: Split
    imports: tuple[str, ...]
    body: tuple[str, ...]


def _plants(text: str) -> tuple[Plant, ...]:
    """Parse blocks that start with a line such as ``train bug`` into plants."""
    found = []
    for block in text.strip("\n").split("\n\n"):
        head, *lines = block.splitlines()
        split, kind = head.split()
        imports = tuple(
            line for line in lines if line.lstrip("> ").startswith("import ")
        )
        body = tuple(line for line in lines if line not in imports)
        assert kind in ("bug", "security", "style")
        found.append(Plant(kind, Split(split), imports, body))  # type: ignore[arg-type]
    return tuple(found)


PLANTS = _plants("""
train bug
> import glob

train bug
> import json

train bug
def {f}({a}):
>    return {a} + {g}

train bug
> def {f}({a}, {b}=[]):
    {b}.append({a})
    return {b}

train bug
def {f}({a}):
>    {g} = {a} + 1
    return {a}

train bug
def {f}({a}):
>    {a} == 0
    return {a}

train security
def {f}({a}):
>    return eval({a})

train security
import subprocess
def {f}({a}):
>    return subprocess.call({a}, shell=True)

train security
import pickle
def {f}({a}):
>    return pickle.loads({a})

train security
import hashlib
def {f}({a}):
>    return hashlib.md5({a})

train security
import os
def {f}({a}):
>    os.chmod({a}, 0o777)

train style
def {f}({a}):
>    return {a} == None

train style
def {f}({a}):
>    return {a} == True

train style
def {f}({a}):
>    return not {a} in (1, 2)

validation bug
def {f}({a}):
>    return {a} is 5

validation bug
def {f}({a}):
>    {a}.size
    return {a}

validation bug
> import math

validation security
def {f}({a}):
>    exec({a})

validation security
import tempfile
def {f}():
>    return tempfile.mktemp()

validation security
import yaml
def {f}({a}):
>    return yaml.load({a})

validation style
def {f}({a}):
>    return {a} != None

validation style
def {f}({a}):
>    return {a} == False

test bug
> def {f}({a}, {b}=len("ab")):
    return {a} + {b}

test bug
def {f}({a}):
>    return getattr({a}, "size")

test bug
def {f}({a}):
    {b} = 0
>    for {g} in range({a}):
        {b} += 1
    return {b}

test bug
def {f}({a}):
>    return {a} if {a} else f"none"

test security
import marshal
def {f}({a}):
>    return marshal.loads({a})

test security
def {f}({a}):
>    return f"SELECT size FROM {g} WHERE id = {{{a}}}"

test security
import hashlib
def {f}({a}):
>    return hashlib.sha1({a})

test security
def {f}():
>    return "0.0.0.0"

test style
def {f}({a}):
>    return not {a} is None

test style
def {f}({a}):
>    return {a} != False
""")


@dataclass(frozen=True)
class Planted:
    """A module with plants.

    ``defects`` are the lines and kinds of all but style problems.
    """

    source: str
    defects: tuple[tuple[int, str], ...]


def of_kind(kind: PlantKind, split: Split) -> list[Plant]:
    """Return the plants of a kind that tasks of ``split`` use."""
    home = Split.TEST if split is Split.OUT_OF_VOCABULARY else split
    return [plant for plant in PLANTS if (plant.kind, plant.split) == (kind, home)]


def plant_all(
    rng: Random,
    source: str,
    plants: Sequence[Plant],
    *,
    names: Sequence[str],
    parameters: Sequence[tuple[str, str]],
) -> Planted:
    """Add plants to a module in random order."""
    lines: list[tuple[str, str]] = [(line, "") for line in source.rstrip().split("\n")]
    imports: dict[str, str] = {}
    blocks: list[list[tuple[str, str]]] = []
    words = list(names)
    for plant in plants:
        first, second = rng.choice(parameters)
        noun, other = words.pop(), words.pop()
        verb = rng.choice(_VERBS)
        slots = {"f": f"{verb}_{noun}", "a": first, "b": second, "g": other}
        for line in plant.imports:
            imports[line.lstrip("> ")] = plant.kind if line[0] == ">" else ""
        if plant.body:
            blocks.append([_filled(line, plant.kind, slots) for line in plant.body])
    places = [place for place, (line, _) in enumerate(lines) if not line and place]
    for block in blocks:
        starts = [p for p in places if lines[p - 1][0] and not lines[p][0]]
        if starts and rng.random() < 0.5:
            at = rng.choice(starts)
            lines[at:at] = [("", ""), ("", ""), *block]
        else:
            lines += [("", ""), ("", ""), *block]
        places = [p for p, (line, _) in enumerate(lines) if not line and p]
    head = [(line, kind) for line, kind in sorted(imports.items())]
    if head:
        lines = [*head, ("", ""), *lines]
    defects = tuple(
        (number, kind)
        for number, (_, kind) in enumerate(lines, 1)
        if kind in ("bug", "security")
    )
    return Planted("\n".join(line for line, _ in lines) + "\n", defects)


_VERBS = ("load", "save", "send", "check", "fetch", "count", "mark", "store")


def _filled(line: str, kind: str, slots: dict[str, str]) -> tuple[str, str]:
    bad = line.startswith(">")
    text = line.removeprefix(">")
    text = text.removeprefix(" ") if bad and text.startswith(" def") else text
    return text.format_map(slots), kind if bad else ""
