"""Generate projects: a package of two modules, their tests, and a script."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal

from . import functions
from .functions import Point, Template
from .names import Names

_ASSIGNED = re.compile(r"^(\w+) = ", re.MULTILINE)

_CONSTANTS = ("LIMIT", "RATE", "BASE", "STEP", "BONUS", "MARGIN", "QUOTA", "SPARE")
_SCRIPTS = ("make", "build", "report", "draw", "export", "measure")
_TEXTS = ("no {n} left", "{a} {n}", "the {n} is {a}", "{a} {n} for you", "a {a} {n}")

Points = Literal["few", "all"]
"""Number of test calls per function: two, or as many as reveal every fault."""


@dataclass(frozen=True)
class Function:
    """One generated function of a module.

    Attributes:
        default: Default value of the last parameter; None if it has none.
        text: The text for the placeholder ``{T}`` in the body.
    """

    template: Template
    name: str
    parameters: tuple[str, ...]
    default: int | None = None
    text: str = ""

    def fill(self, line: str, constant: str) -> str:
        """Return a line of a template with its placeholders filled."""
        first, second = (*self.parameters, "", "")[:2]
        return line.format(a=first, b=second, K=constant, T=self.text)

    def call(self, point: Point) -> str:
        """Return a call of the function with the arguments ``point``."""
        return f"{self.name}({', '.join(map(repr, point))})"

    def signature(self) -> str:
        """Return the function's ``def`` line, without a line break."""
        parameters = ", ".join(self.parameters)
        if self.default is not None:
            parameters += f"={self.default}"
        return f"def {self.name}({parameters}):"


@dataclass(frozen=True)
class Module:
    """One generated module of a package.

    Attributes:
        constant: Name of the module's constant.
    """

    package: str
    name: str
    constant: str
    value: int
    functions: tuple[Function, ...]

    @property
    def path(self) -> str:
        """Relative path of the module."""
        return f"{self.package}/{self.name}.py"

    @property
    def test_path(self) -> str:
        """Relative path of the module's tests."""
        return f"tests/test_{self.name}.py"

    def source(self, *, docs: bool) -> str:
        """Return the module's source."""
        blocks = [f"{self.constant} = {self.value}"]
        for function in self.functions:
            lines = [function.signature()]
            if docs:
                doc = function.fill(function.template.doc, self.constant)
                lines.append(f'    """{doc}"""')
            body = function.fill(function.template.body, self.constant)
            blocks.append("\n".join([*lines, f"    {body}"]))
        return "\n\n\n".join(blocks) + "\n"

    def tests(self, points: Points = "few") -> str:
        """Return the source of the module's tests."""
        names = [function.name for function in self.functions]
        if any(function.template.uses_constant for function in self.functions):
            names.insert(0, self.constant)
        blocks = [f"from {self.package}.{self.name} import {', '.join(sorted(names))}"]
        for function in self.functions:
            lines = [f"def test_{function.name}():"]
            lines += _asserts(function, self.constant, points)
            blocks.append("\n".join(lines))
        return "\n\n\n".join(blocks) + "\n"

    def values(self) -> dict[str, str]:
        """Return the right ``repr`` of many expressions: the constant, and calls.

        Some calls have the arguments of the tests, some others that reveal the same
        faults.
        """
        found = {self.constant: repr(self.value)}
        for function in self.functions:
            body, points = function.template.body, function.template.points
            for point in (*points, *map(other_arguments, points)):
                value = functions.evaluate(body, point, self.value, function.text)
                found[function.call(point)] = value
        return found


@dataclass(frozen=True)
class Project:
    """A generated project: a package of two modules, their tests, and a script."""

    package: str
    modules: tuple[Module, ...]
    script: str
    files: dict[str, str]


def build(
    rng: Random,
    names: Names,
    *,
    templates: Sequence[Template] = (),
    docs: bool | None = None,
) -> Project:
    """Create a random project."""
    package = rng.choice(names.packages)
    nouns = rng.sample(names.nouns, 7)
    docs = rng.random() < 0.4 if docs is None else docs
    modules = []
    for index in range(2):
        wanted = list(templates) if index == 0 else []
        while len(wanted) < 2:
            drawn = functions.pick(rng)
            if drawn not in wanted:
                wanted.append(drawn)
        modules.append(_module(rng, names, package, nouns[3 * index :], wanted))
    script = f"{rng.choice(_SCRIPTS)}_{nouns[6]}.py"
    files = {module.path: module.source(docs=docs) for module in modules}
    files |= {module.test_path: module.tests() for module in modules}
    files[script] = _script(package, nouns[6])
    return Project(package, tuple(modules), script, files)


def _module(
    rng: Random,
    names: Names,
    package: str,
    nouns: Sequence[str],
    templates: Sequence[Template],
) -> Module:
    made = []
    for template, noun in zip(templates, nouns[1:], strict=False):
        parameters: tuple[str, ...] = rng.choice(names.parameters)
        if template.parameters == ("list",):
            parameters = (rng.choice(names.lists),)
        made.append(
            Function(
                template,
                f"{rng.choice(template.verbs)}_{noun}",
                parameters[: len(template.parameters)],
                rng.randint(2, 60) if template is functions.DEFAULT else None,
                text_for(rng, names, noun) if template is functions.TEXT else "",
            )
        )
    noun = nouns[0].upper()
    word = rng.choice(_CONSTANTS)
    constant = f"{word}_{noun}" if rng.random() < 0.5 else f"{noun}_{word}"
    return Module(package, nouns[0], constant, rng.randint(2, 60), tuple(made))


def text_for(rng: Random, names: Names, noun: str) -> str:
    """Return a short random text with ``noun``, to put into a generated function."""
    return rng.choice(_TEXTS).format(a=rng.choice(names.adjectives), n=noun)


def other_arguments(point: Point) -> Point:
    """Add 1 to positive arguments, which then reveal the same faults."""
    return tuple(_shift(value) for value in point)


def _shift(value: object) -> object:
    if isinstance(value, list):
        return [_shift(item) for item in value]
    return value + 1 if isinstance(value, int) and value > 0 else value


def _asserts(function: Function, constant: str, points: Points) -> list[str]:
    template = function.template
    if template is functions.TEXT:
        return [f"    assert isinstance({function.name}(), str)"]
    lines = []
    for point in template.points[: 2 if points == "few" else None]:
        if template.uses_constant:  # the test shall hold for each of its values
            body = template.body.removeprefix("return ")
            expected = body.format(a=repr(point[0]), K=constant)
        else:
            expected = functions.evaluate(template.body, point)
        relation = "is" if expected in ("True", "False") else "=="
        lines.append(f"    assert {function.call(point)} {relation} {expected}")
    return lines


def _script(package: str, noun: str) -> str:
    return (
        "import sys\n\n"
        "values = sys.argv[1:]\n"
        f'print("{package} {noun}:", len(values), *values)\n'
    )


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
