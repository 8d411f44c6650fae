"""The calculator: arithmetic by walking the syntax tree; nothing is evaluated."""

import ast
import math
import operator
from collections.abc import Callable
from typing import ClassVar

from pydantic import Field

from agentgym.core.tools import tool
from agentgym.errors import ToolError
from agentgym.rollout.solo.toolbox.base import BuiltInTool, ToolSettings

Number = int | float

_MAX_DEPTH = 60
_MAX_ROUNDING = 100
_BINARY: dict[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
}
_UNARY: dict[type[ast.unaryop], Callable[[Number], Number]] = {
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
}
_FUNCTIONS: dict[str, Callable[..., Number]] = {
    "abs": abs,
    "ceil": math.ceil,
    "cos": math.cos,
    "exp": math.exp,
    "floor": math.floor,
    "log": math.log,
    "log10": math.log10,
    "log2": math.log2,
    "max": max,
    "min": min,
    "round": round,
    "sin": math.sin,
    "sqrt": math.sqrt,
    "tan": math.tan,
}
_CONSTANTS = {"pi": math.pi, "e": math.e, "tau": math.tau}


class CalculatorSettings(ToolSettings):
    """Bounds of the calculator.

    Attributes:
        max_characters: Of an expression.
        max_bits: Of a whole number, results in between included.
    """

    max_characters: int = Field(default=500, ge=1, le=10_000)
    max_bits: int = Field(default=4096, ge=8, le=14_000)


class Calculator(BuiltInTool[CalculatorSettings]):
    """Arithmetic on numbers of bounded size."""

    name: ClassVar[str] = "calculator"
    settings_type: ClassVar[type[ToolSettings]] = CalculatorSettings

    @tool
    def calculator(self, expression: str) -> str:
        """Calculate an arithmetic expression, e.g. "2 * (3 + 4) ** 2" or "sqrt(2)".

        Args:
            expression: Numbers, + - * / // % **, parentheses, pi, e, and functions
                such as sqrt, log, sin, round, min and max.
        """
        limit = self.settings.max_characters
        if len(expression) > limit:
            raise ToolError(f"an expression may have at most {limit} characters.")
        return str(calculate(expression, max_bits=self.settings.max_bits))


def calculate(expression: str, *, max_bits: int = 4096) -> Number:
    """Return the value of an arithmetic expression.

    Raises:
        ToolError: It is not arithmetic, or a number in it grows too large.
    """
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

    def value(inner: ast.expr) -> Number:
        return _value(inner, max_bits, depth - 1)

    match node:
        case ast.Constant(value=int() | float() as number) if not isinstance(
            number, bool
        ):
            return _bounded(number, max_bits)
        case ast.Name(id=name) if name in _CONSTANTS:
            return _CONSTANTS[name]
        case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
            return _UNARY[type(op)](value(operand))
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            a, b = value(left), value(right)
            if isinstance(op, ast.Pow):
                _check_power(a, b, max_bits)
            return _bounded(_BINARY[type(op)](a, b), max_bits)
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if (
            name in _FUNCTIONS
        ):
            numbers = [value(argument) for argument in args]
            if name == "round" and any(abs(n) > _MAX_ROUNDING for n in numbers[1:]):
                raise ToolError(f"round takes at most {_MAX_ROUNDING} digits.")
            return _bounded(_FUNCTIONS[name](*numbers), max_bits)
    raise ToolError(f"{ast.unparse(node)!r} is not arithmetic.")


def _check_power(base: Number, exponent: Number, max_bits: int) -> None:
    """Refuse a power of whole numbers before it is computed, if it is too large."""
    if (
        isinstance(base, int)
        and isinstance(exponent, int)
        and base.bit_length() * abs(exponent) > max_bits + abs(exponent)
        and abs(base) > 1
    ):
        raise ToolError("a power in the expression is too large.")


def _bounded(number: Number, max_bits: int) -> Number:
    if isinstance(number, int):
        if number.bit_length() > max_bits:
            raise ToolError("a number in the expression is too large.")
    elif not isinstance(number, float):
        raise ToolError("the result is no real number.")
    elif not math.isfinite(number):
        raise ToolError("a number in the expression is too large.")
    return number
