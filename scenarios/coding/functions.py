"""Templates for generated functions: their bodies, test arguments and faults."""

import tomllib
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from agentgym.core.task import Split

Point = tuple[object, ...]
KINDS = ("operator", "condition", "value")
"""The kinds of faults."""


@dataclass(frozen=True)
class Fault:
    """A wrong body for a generated function.

    Attributes:
        kind: The wrong part of the body: ``operator``, ``condition`` or ``value``.
        split: The split whose tasks use the fault. Tasks of ``OUT_OF_VOCABULARY`` use
            the faults of ``TEST``.
    """

    kind: str
    body: str
    split: Split


@dataclass(frozen=True)
class Template:
    """A template for generated functions whose body has one line.

    Its placeholders: ``{a}`` and ``{b}`` for the parameters, ``{K}`` for the name of
    the module's constant, ``{T}`` for a text. Each fault gives a wrong value for some
    of ``points``, the arguments of the test calls.
    """

    key: str
    verbs: tuple[str, ...]
    parameters: tuple[str, ...]
    doc: str
    body: str
    points: tuple[Point, ...]
    faults: tuple[Fault, ...] = ()

    @property
    def uses_constant(self) -> bool:
        """Whether the body contains the module's constant."""
        return "{K}" in self.body


def _template(key: str, found: dict[str, Any]) -> Template:
    faults = []
    for line in found.get("faults", "").splitlines():
        head, _, body = line.partition(": ")
        split, kind = head.split()
        faults.append(Fault(kind, body, Split(split)))
    return Template(
        key,
        tuple(found["verbs"]),
        tuple(found["parameters"]),
        found["doc"],
        found["body"],
        tuple(map(tuple, found["points"])),
        tuple(faults),
    )


_TABLES = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
*_WITH_FAULTS, DEFAULT, TEXT = (_template(*item) for item in _TABLES.items())
TEMPLATES = tuple(_WITH_FAULTS)


def evaluate(body: str, point: Point, constant: int = 0, text: str = "") -> str:
    """Return the ``repr`` of the value that a body returns for arguments."""
    expression = body.removeprefix("return ").format(a="a", b="b", K="K", T=text)
    names = {**dict(zip("ab", point, strict=False)), "K": constant}
    return repr(eval(expression, {}, names))  # our own templates


def with_defects(split: Split) -> Split:
    """Return the split whose faults the tasks of ``split`` have."""
    return Split.TEST if split is Split.OUT_OF_VOCABULARY else split


def with_fault(kind: str, split: Split) -> tuple[tuple[Template, Fault], ...]:
    """Return pairs of a template and its fault, of this kind and for ``split``."""
    home = with_defects(split)
    return tuple(
        (template, fault)
        for template in TEMPLATES
        for fault in template.faults
        if fault.kind == kind and fault.split is home
    )


def pick(rng: Random) -> Template:
    """Return a random template."""
    return rng.choice(TEMPLATES)
