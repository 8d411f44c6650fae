"""Add layout flaws or an unused import to source without changing its behavior."""

import re
from random import Random

_ASSIGNED = re.compile(r"^(\w+) = ", re.MULTILINE)
_OPERATORS = re.compile(r" (\+|-|\*|//|%|<=|>=|==|!=|<|>) ")


def unformatted(rng: Random, source: str) -> str:
    """Return the source with two kinds of layout flaws that a formatter fixes."""
    flaws = rng.sample(
        (_tight_assignment, _one_blank_line, _spaced_parameters, _tight_commas), 2
    )
    for flaw in flaws:
        source = flaw(source)
    return source


def with_unused_import(rng: Random, source: str) -> str:
    """Return the source with an unused import added at the top."""
    return f"import {rng.choice(('os', 're', 'math', 'json'))}\n\n{source}"


def _tight_assignment(source: str) -> str:
    return _ASSIGNED.sub(r"\1=", source)


def _one_blank_line(source: str) -> str:
    return source.replace("\n\n\n", "\n\n")


def _spaced_parameters(source: str) -> str:
    return re.sub(r"(def \w+\()(\w)", r"\1 \2", source)


def _tight_commas(source: str) -> str:
    return source.replace(", ", ",")
