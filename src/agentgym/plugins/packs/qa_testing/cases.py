"""Parse an agent's tests: each is a function call and its expected value.

The arguments of the call are literals, such as ``3`` or ``[1, 2]``. So a test sees only
the function's result. It cannot read the function's source, which would show whether
the function is a mutant (a version with a planted fault).
"""

import ast
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from agentgym.errors import ToolError
from agentgym.sandbox.guest.plain import plain_text

_LONGEST = 300


class Case(NamedTuple):
    """One test: a call, e.g.

    ``area_lamp(3, 4)``, with the value that it must return.
    """

    call: str
    expected: Any

    @property
    def function(self) -> str:
        """Name of the function that is called."""
        return self.call.partition("(")[0]


def read_call(text: str, functions: Iterable[str]) -> str:
    """Check a function call, and return it in the format of :func:`ast.unparse`."""
    wrong = f"{text[:60]!r} is not a call with plain values, as in add(2, 3)."
    if len(text) > _LONGEST:
        raise ToolError(wrong)
    try:
        tree = ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ToolError(wrong) from None
    if not isinstance(tree, ast.Call) or not isinstance(tree.func, ast.Name):
        raise ToolError(wrong)
    if tree.func.id not in functions:
        raise ToolError(f"there is no function {tree.func.id} in the modules.")
    for value in (*tree.args, *(keyword.value for keyword in tree.keywords)):
        try:
            ast.literal_eval(value)
        except (ValueError, TypeError, RecursionError, MemoryError):
            raise ToolError(wrong) from None
    if any(keyword.arg is None for keyword in tree.keywords):
        raise ToolError(wrong)
    return ast.unparse(tree)


def read_value(text: str) -> Any:
    """Parse a literal, such as ``12`` or ``[1, 2]``."""
    try:
        value = ast.literal_eval(text.strip()) if len(text) <= _LONGEST else ...
        plain_text(value)
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        raise ToolError(
            f"{text[:60]!r} is not a plain value, as 12 or [1, 2]."
        ) from None
    return value


def render_tests(module: str, cases: Sequence[Case]) -> str:
    """Return the source of a test file with the given tests of one module."""
    names = ", ".join(sorted({case.function for case in cases}))
    blocks = [f"from {module} import {names}"]
    for number, case in enumerate(cases, 1):
        blocks.append(
            f"def test_{case.function}_{number}():\n"
            f"    assert {case.call} == {case.expected!r}"
        )
    return "\n\n\n".join(blocks) + "\n"
