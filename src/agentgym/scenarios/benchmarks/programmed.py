"""Read inputs from the test programs in Hugging Face's data of HumanEval+ and MBPP+.

A test program has the inputs as a literal, and a loop that calls the function with each
of them. The program is parsed, and never run.
"""

import ast
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_NUMBERS = {"inf": math.inf, "nan": math.nan}
_MOST_TOLERANCE = 0.01


@dataclass(frozen=True)
class TestProgram:
    """The calls that a test program makes.

    Attributes:
        name: Name of the function that it calls; in HumanEval+ always ``candidate``.
        inputs: The arguments of each call.
        tolerance: Absolute tolerance for floats; 0 if the program has none.
    """

    __test__ = False

    name: str
    inputs: list[Any]
    tolerance: float

    @classmethod
    def parse(cls, text: str) -> "TestProgram":
        """Parse the source of a test program.

        Raises:
            ValueError: The source is not a test program of EvalPlus.
        """
        try:
            tree = ast.parse(text)
            assigned = next(filter(_assigns_inputs, ast.walk(tree)), ast.Pass())
            value = getattr(assigned, "value", ast.Constant(None))
            inputs = ast.literal_eval(_Constants().visit(value))
        except (SyntaxError, TypeError, RecursionError, MemoryError) as error:
            raise ValueError(f"it cannot be read: {type(error).__name__}") from None
        loops = [n for n in ast.walk(tree) if isinstance(n, ast.For) and _runs_over(n)]
        called = [name for loop in loops for name in _called(loop)]
        if not called or not inputs or not all(isinstance(i, list) for i in inputs):
            raise ValueError("it has no call for each of its inputs")
        numbers = [n for loop in loops for n in _numbers(loop)]
        return cls(called[0], inputs, numbers[-1] if numbers else 0.0)


class _Constants(ast.NodeTransformer):
    """Replaces the names ``inf`` and ``nan`` in a syntax tree by their values.

    Then `ast.literal_eval` can evaluate the tree.
    """

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return ast.Constant(_NUMBERS[node.id]) if node.id in _NUMBERS else node


def _assigns_inputs(node: ast.AST) -> bool:
    return isinstance(node, ast.Assign) and _is_inputs(node.targets[0])


def _is_inputs(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "inputs"


def _runs_over(loop: ast.For) -> bool:
    return any(map(_is_inputs, ast.walk(loop.iter)))


def _called(loop: ast.For) -> Iterator[str]:
    """Yield the names of functions that a loop calls in the form ``name(*x)``.

    The function ``ref_func`` is left out.
    """
    for node in ast.walk(loop):
        match node:
            case ast.Call(
                func=ast.Name(id=name), args=[ast.Starred(value=ast.Name())]
            ) if name != "ref_func":
                yield name


def _numbers(loop: ast.For) -> Iterator[float]:
    for node in ast.walk(loop):
        match node:
            case ast.Constant(value=int() | float() as value) if (
                not isinstance(value, bool) and 0 <= value <= _MOST_TOLERANCE
            ):
                yield float(value)
