"""Templates for generated functions: their bodies, test arguments and faults."""

from dataclasses import dataclass
from random import Random

from agentgym.core.task import Split

Point = tuple[object, ...]


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


def _faults(text: str) -> tuple[Fault, ...]:
    """Parse lines such as ``train operator: return {a} - {b}`` into faults."""
    found = []
    for line in text.strip().splitlines():
        head, _, body = line.strip().partition(": ")
        split, kind = head.split()
        found.append(Fault(kind, body, Split(split)))
    return tuple(found)


TEMPLATES = (
    Template(
        "add",
        ("total", "sum", "join"),
        ("a", "b"),
        "Return {a} plus {b}.",
        "return {a} + {b}",
        ((2, 3), (7, 4), (10, 6)),
        _faults("""
            train operator: return {a} - {b}
            train operator: return {a} * {b}
            train value: return {a} + {a}
            validation value: return {b} + {b}
            validation operator: return {a} % {b}
            validation value: return {a} + {b} + 1
            validation operator: return {a} // {b}
            test value: return {a} + {b} - 1
            test value: return {a} + {b} + 2
            test operator: return {a} ** {b}
            test operator: return {a} & {b}
        """),
    ),
    Template(
        "subtract",
        ("rest", "reduce", "spare"),
        ("a", "b"),
        "Return {a} minus {b}.",
        "return {a} - {b}",
        ((9, 2), (15, 4), (20, 7)),
        _faults("""
            train operator: return {a} + {b}
            train value: return {b} - {a}
            train value: return {a} - {a}
            validation operator: return {a} * {b}
            validation value: return {a} - {b} - 1
            validation operator: return {a} // {b}
            validation value: return {a} - {b} + 1
            test operator: return {a} % {b}
            test operator: return {a} & {b}
            test value: return {a} - {b} - 2
            test value: return {a} - 1
        """),
    ),
    Template(
        "multiply",
        ("area", "product", "multiply"),
        ("a", "b"),
        "Return {a} times {b}.",
        "return {a} * {b}",
        ((3, 4), (5, 7), (6, 9)),
        _faults("""
            train operator: return {a} + {b}
            train operator: return {a} // {b}
            train value: return {a} * {a}
            validation value: return {b} * {b}
            validation operator: return {a} - {b}
            validation operator: return {a} % {b}
            validation value: return {a} * {b} + 1
            test operator: return {a} ** {b}
            test operator: return {a} & {b}
            test value: return {a} * {b} - 1
            test value: return 2 * {a} * {b}
        """),
    ),
    Template(
        "divide",
        ("share", "divide", "split"),
        ("a", "b"),
        "Return {a} divided by {b}.",
        "return {a} // {b}",
        ((9, 2), (20, 6), (35, 4)),
        _faults("""
            train operator: return {a} * {b}
            train operator: return {a} % {b}
            train value: return {b} // {a}
            validation operator: return {a} + {b}
            validation value: return {a} // {b} - 1
            validation operator: return {a} - {b}
            validation value: return {a} // {b} + 1
            test operator: return {a} / {b}
            test operator: return {a} & {b}
            test value: return {a} // {b} + 2
            test value: return {a} // 2
        """),
    ),
    Template(
        "percent",
        ("percent", "portion"),
        ("a", "b"),
        "Return {a} as percent of {b}.",
        "return 100 * {a} // {b}",
        ((3, 5), (7, 20), (9, 12)),
        _faults("""
            train value: return 100 * {b} // {a}
            train value: return 10 * {a} // {b}
            train operator: return 100 * {a} * {b}
            validation value: return 1000 * {a} // {b}
            validation operator: return 100 * {a} % {b}
            validation value: return 100 * {a} // {a}
            validation operator: return 100 + {a} // {b}
            test value: return 100 * {b} // {b}
            test value: return 100 * {a} // {b} + 1
            test operator: return 100 * {a} - {b}
            test operator: return 100 * {a} + {b}
        """),
    ),
    Template(
        "scale",
        ("scale", "grow"),
        ("a",),
        "Return {a} times {K}.",
        "return {a} * {K}",
        ((3,), (5,), (8,)),
        _faults("""
            train operator: return {a} + {K}
            train operator: return {a} - {K}
            train value: return {a} * {a}
            validation operator: return {a} // {K}
            validation value: return {K} * {K}
            validation operator: return {a} % {K}
            validation value: return {a} * {K} + 1
            test operator: return {a} & {K}
            test operator: return {a} / {K}
            test value: return {a} * {K} - 1
            test value: return 2 * {a} * {K}
        """),
    ),
    Template(
        "raise",
        ("lift", "extend"),
        ("a",),
        "Return {a} plus {K}.",
        "return {a} + {K}",
        ((3,), (5,), (8,)),
        _faults("""
            train operator: return {a} - {K}
            train operator: return {a} * {K}
            train value: return {a} + {a}
            validation value: return {a} + {K} + 1
            validation operator: return {a} // {K}
            validation value: return {a} + 1
            validation operator: return {a} % {K}
            test value: return {a} + {K} - 1
            test value: return {K} + {K}
            test operator: return {a} & {K}
            test operator: return {a} / {K}
        """),
    ),
    Template(
        "cap",
        ("cap", "limit"),
        ("a",),
        "Return {a}, but at most {K}.",
        "return min({a}, {K})",
        ((1,), (100,), (250,)),
        _faults("""
            train value: return max({a}, {K})
            train value: return {a}
            validation value: return {K}
            validation value: return min({a}, 1)
            test value: return min({a}, {K} - 1)
            test value: return min({a}, {K}) + 1
        """),
    ),
    Template(
        "floor",
        ("floor", "least"),
        ("a",),
        "Return {a}, but at least {K}.",
        "return max({a}, {K})",
        ((1,), (100,), (250,)),
        _faults("""
            train value: return min({a}, {K})
            train value: return {K}
            validation value: return {a}
            validation value: return max({a}, 1)
            test value: return max({a}, {K} + 1)
            test value: return max({a}, {K}) - 1
        """),
    ),
    Template(
        "over",
        ("is_over", "exceeds"),
        ("a", "b"),
        "Tell whether {a} is more than {b}.",
        "return {a} > {b}",
        ((5, 5), (6, 5), (3, 8), (9, 4)),
        _faults("""
            train condition: return {a} < {b}
            train condition: return {a} >= {b}
            validation condition: return {a} <= {b}
            validation condition: return {a} == {b}
            test condition: return {a} != {b}
            test condition: return {a} > {b} + 1
        """),
    ),
    Template(
        "under",
        ("is_under", "below"),
        ("a", "b"),
        "Tell whether {a} is less than {b}.",
        "return {a} < {b}",
        ((5, 5), (5, 6), (8, 3), (4, 9)),
        _faults("""
            train condition: return {a} > {b}
            train condition: return {a} <= {b}
            validation condition: return {a} == {b}
            validation condition: return {a} >= {b}
            test condition: return {a} != {b}
            test condition: return {a} < {b} - 1
        """),
    ),
    Template(
        "enough",
        ("enough", "covers"),
        ("a", "b"),
        "Tell whether {a} is at least {b}.",
        "return {a} >= {b}",
        ((5, 5), (6, 5), (3, 8), (9, 4)),
        _faults("""
            train condition: return {a} <= {b}
            train condition: return {a} > {b}
            validation condition: return {a} < {b}
            validation condition: return {a} == {b}
            test condition: return {a} != {b}
            test condition: return {a} > {b} + 1
        """),
    ),
    Template(
        "within",
        ("within", "fits"),
        ("a", "b"),
        "Tell whether {a} is at most {b}.",
        "return {a} <= {b}",
        ((5, 5), (5, 6), (8, 3), (4, 9)),
        _faults("""
            train condition: return {a} >= {b}
            train condition: return {a} < {b}
            validation condition: return {a} > {b}
            validation condition: return {a} == {b}
            test condition: return {a} != {b}
            test condition: return {a} < {b} - 1
        """),
    ),
    Template(
        "same",
        ("same", "matches"),
        ("a", "b"),
        "Tell whether {a} equals {b}.",
        "return {a} == {b}",
        ((5, 5), (6, 5), (3, 8)),
        _faults("""
            train condition: return {a} != {b}
            train condition: return {a} >= {b}
            validation condition: return {a} <= {b}
            validation condition: return {a} > {b}
            test condition: return {a} < {b}
            test condition: return {a} == {b} + 1
        """),
    ),
    Template(
        "both",
        ("both", "all"),
        ("a", "b"),
        "Tell whether {a} and {b} are positive.",
        "return {a} > 0 and {b} > 0",
        ((1, 2), (0, 3), (4, 0), (0, 0)),
        _faults("""
            train condition: return {a} > 0 or {b} > 0
            train condition: return {a} < 0 and {b} > 0
            validation condition: return {a} > 0 and {b} < 0
            validation condition: return {a} > 0 and {a} > 0
            test condition: return {b} > 0 and {b} > 0
            test condition: return {a} >= 0 and {b} > 0
        """),
    ),
    Template(
        "either",
        ("either", "any"),
        ("a", "b"),
        "Tell whether {a} or {b} is positive.",
        "return {a} > 0 or {b} > 0",
        ((1, 2), (0, 3), (4, 0), (0, 0)),
        _faults("""
            train condition: return {a} > 0 and {b} > 0
            train condition: return {a} < 0 or {b} > 0
            validation condition: return {a} > 0 or {b} < 0
            validation condition: return {b} > 0 or {b} > 0
            test condition: return {a} > 0 or {a} > 0
            test condition: return {a} >= 0 or {b} > 0
        """),
    ),
    Template(
        "collect",
        ("gather", "overall"),
        ("list",),
        "Return the sum of {a}.",
        "return sum({a})",
        (([2, 9],), ([4, 1, 7],), ([6, 3, 8, 5],)),
        _faults("""
            train value: return len({a})
            train value: return max({a})
            validation value: return min({a})
            validation value: return sum({a}) + 1
            test value: return sum({a}) - 1
            test value: return 2 * sum({a})
        """),
    ),
    Template(
        "count",
        ("count", "tally"),
        ("list",),
        "Return how many {a} there are.",
        "return len({a})",
        (([2, 9],), ([4, 1, 7],), ([6, 3, 8, 5],)),
        _faults("""
            train value: return sum({a})
            train value: return len({a}) - 1
            validation value: return max({a})
            validation value: return len({a}) + 1
            test value: return min({a})
            test value: return len({a}) + 2
        """),
    ),
    Template(
        "biggest",
        ("biggest", "peak"),
        ("list",),
        "Return the most of {a}.",
        "return max({a})",
        (([2, 9],), ([4, 1, 7],), ([6, 3, 8, 5],)),
        _faults("""
            train value: return min({a})
            train value: return sum({a})
            validation value: return len({a})
            validation value: return max({a}) + 1
            test value: return max({a}) - 1
            test value: return {a}[0]
        """),
    ),
    Template(
        "first",
        ("first", "leading"),
        ("list",),
        "Return the first of {a}.",
        "return {a}[0]",
        (([2, 9, 5],), ([4, 1, 7],), ([6, 3, 8, 5],)),
        _faults("""
            train value: return {a}[1]
            train value: return {a}[-1]
            validation value: return {a}[2]
            validation value: return {a}[-2]
            test value: return {a}[0] + 1
            test value: return max({a})
        """),
    ),
    Template(
        "last",
        ("last", "final"),
        ("list",),
        "Return the last of {a}.",
        "return {a}[-1]",
        (([2, 9, 5],), ([4, 1, 7],), ([6, 3, 8, 5],)),
        _faults("""
            train value: return {a}[0]
            train value: return {a}[1]
            validation value: return {a}[-2]
            validation value: return {a}[-3]
            test value: return {a}[-1] + 1
            test value: return max({a})
        """),
    ),
    Template(
        "upto",
        ("upto", "range"),
        ("a",),
        "Return the numbers from 1 to {a}.",
        "return list(range(1, {a} + 1))",
        ((3,), (5,), (6,)),
        _faults("""
            train value: return list(range(1, {a}))
            train value: return list(range({a} + 1))
            validation value: return list(range({a}))
            validation value: return list(range(2, {a} + 1))
            test value: return list(range(1, {a} + 2))
            test value: return list(range(1, {a} - 1))
        """),
    ),
)

DEFAULT = Template(
    "default",
    ("adjust", "update", "settle", "plan"),
    ("a", "b"),
    "Return {a} plus {b}.",
    "return {a} + {b}",
    ((2, 3), (7, 4), (10, 6)),
)
TEXT = Template(
    "text",
    ("describe", "label", "announce", "greet"),
    (),
    "Return the text to show.",
    'return "{T}"',
    ((),),
)


def with_fault(kind: str, split: Split) -> tuple[tuple[Template, Fault], ...]:
    """Return pairs of a template and its fault, of this kind and for ``split``."""
    home = Split.TEST if split is Split.OUT_OF_VOCABULARY else split
    return tuple(
        (template, fault)
        for template in TEMPLATES
        for fault in template.faults
        if fault.kind == kind and fault.split is home
    )


def pick(rng: Random, *, constant: bool | None = None) -> Template:
    """Return a random template."""
    pool = [t for t in TEMPLATES if constant is None or t.uses_constant == constant]
    return rng.choice(pool)
