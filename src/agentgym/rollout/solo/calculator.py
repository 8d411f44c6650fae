"""Calculator: evaluate arithmetic by walking the syntax tree, without ``eval``."""

import ast
import math
import operator
from collections.abc import Callable, Mapping

from pydantic import Field

from agentgym.core.tools import tool
from agentgym.errors import ToolError
from agentgym.rollout.solo.tools import BuiltInTool

Number = int | float

_MAX_DEPTH = 60
_MAX_ROUNDING = 100
_OF_MATH = "ceil cos exp floor log log10 log2 sin sqrt tan"
_FUNCTIONS: Mapping[type[ast.AST] | str, Callable[..., Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
    **{f.__name__: f for f in (abs, max, min, round)},
    **{name: getattr(math, name) for name in _OF_MATH.split()},
}
_CONSTANTS = {"pi": math.pi, "e": math.e, "tau": math.tau}


class Calculator(BuiltInTool):
    """A tool for arithmetic with numbers of limited size."""

    max_characters: int = Field(default=500, ge=1, le=10_000)  # of an expression
    max_bits: int = Field(default=4096, ge=8, le=14_000)
    """Maximum size of an integer in bits, also of intermediate results."""

    @tool
    def calculator(self, expression: str) -> str:
        """Calculate an arithmetic expression, e.g. "2 * (3 + 4) ** 2" or "sqrt(2)".

        Args:
            expression: Numbers, + - * / // % **, parentheses, pi, e, and functions
                such as sqrt, log, sin, round, min and max.
        """
        limit = self.max_characters
        if len(expression) > limit:
            raise ToolError(f"an expression may have at most {limit} characters.")
        return str(calculate(expression, max_bits=self.max_bits))


def calculate(expression: str, *, max_bits: int = 4096) -> Number:
    """Return the value of an arithmetic expression, or raise a ToolError."""
    try:
        tree = ast.parse(expression.strip(), mode="eval")
        return _value(tree.body, max_bits, _MAX_DEPTH)
    except (SyntaxError, ValueError, MemoryError, RecursionError) as error:
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        raise ToolError(f"{expression!r} cannot be calculated: {reason}.") from None
    except ZeroDivisionError:
        raise ToolError(f"{expression!r} divides by zero.") from None
    except OverflowError:
        raise ToolError(f"a number in {expression!r} is too large.") from None
    except TypeError:
        raise ToolError(
            f"a function in {expression!r} has arguments it does not take."
        ) from None


def _value(node: ast.expr, max_bits: int, depth: int) -> Number:
    if depth == 0:
        raise ToolError("the expression is nested too deeply.")
    name: type[ast.AST] | str = ""
    parts: list[ast.expr] = []
    match node:
        case ast.Constant(value=int() | float() as number) if type(number) is not bool:
            return _bounded(number, max_bits)
        case ast.Name(id=constant) if constant in _CONSTANTS:
            return _CONSTANTS[constant]
        case ast.UnaryOp(op=op, operand=only):
            name, parts = type(op), [only]
        case ast.BinOp(left=left, op=op, right=right):
            name, parts = type(op), [left, right]
        case ast.Call(func=ast.Name(id=name), args=parts, keywords=[]):
            pass
    if name not in _FUNCTIONS:
        raise ToolError(f"{ast.unparse(node)!r} is not arithmetic.")
    numbers = [_value(part, max_bits, depth - 1) for part in parts]
    if name == "round" and any(abs(n) > _MAX_ROUNDING for n in numbers[1:]):
        raise ToolError(f"round takes at most {_MAX_ROUNDING} digits.")
    if name is ast.Pow and _is_vast(numbers[0], numbers[1], max_bits):
        raise ToolError("a power in the expression is too large.")
    return _bounded(_FUNCTIONS[name](*numbers), max_bits)


def _is_vast(base: Number, exponent: Number, max_bits: int) -> bool:
    """Return whether a power of integers is too large, without computing it."""
    if not (isinstance(base, int) and isinstance(exponent, int) and abs(base) > 1):
        return False
    return base.bit_length() * abs(exponent) > max_bits + abs(exponent)


def _bounded(number: Number, max_bits: int) -> Number:
    if isinstance(number, int):
        fits = number.bit_length() <= max_bits
    elif isinstance(number, float):
        fits = math.isfinite(number)
    else:
        raise ToolError("the result is not a real number.")
    if not fits:
        raise ToolError("a number in the expression is too large.")
    return number
