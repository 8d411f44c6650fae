"""Plants: pieces of code with one defect each, to add to a module.

A plant is a function with its imports, or only an import. In its text, ``>`` starts the
line with the defect, ``{f}`` is the function's name, ``{a}`` and ``{b}`` are its
parameters, and ``{g}`` is another name. The tool ``lint`` finds each defect at this
line. Each plant belongs to one split.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Literal

from agentgym.core.task import Split
from agentgym.packs.coding.functions import with_defects

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


PLANTS = _plants(Path(__file__).with_suffix(".txt").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Planted:
    """A module with plants.

    ``defects`` are the lines and kinds of all but style problems.
    """

    source: str
    defects: tuple[tuple[int, str], ...]


def of_kind(kind: PlantKind, split: Split) -> list[Plant]:
    """Return the plants of a kind that tasks of ``split`` use."""
    wanted = (kind, with_defects(split))
    return [plant for plant in PLANTS if (plant.kind, plant.split) == wanted]


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
