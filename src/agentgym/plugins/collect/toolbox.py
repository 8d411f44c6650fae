"""Toolbox: create the tools of each rollout from names, settings and functions."""

import ast
import inspect
import math
import operator
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from pydantic import Field, ValidationError

from agentgym.core.background import call
from agentgym.core.settings import explain_invalid
from agentgym.core.tools import Tool, bound_tools, result_text, spec_of, tool
from agentgym.errors import ConfigError, NotFoundError, ToolError, UsageError
from agentgym.integrations.registry import load_factory
from agentgym.plugins.collect.tools import Bash, BuiltInTool, FileEditor, Search
from agentgym.sandbox import Sandbox, SandboxConfig
from agentgym.sandbox.workspace import Workspace
from agentgym.scenarios.base import Environment

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


_BUILT_IN: Mapping[str, type[BuiltInTool]] = {
    "bash": Bash,
    "calculator": Calculator,
    "file_editor": FileEditor,
    "search": Search,
}
_MAX_CHARACTERS = 200_000


class Workbench(Environment):
    """The environment of a rollout without a scenario: its tools and its files."""

    def __init__(self, workspace: Workspace, tools: list[Tool]) -> None:
        self.workspace = workspace
        self._tools = tools

    def tools(self) -> list[Tool]:
        """Return the tools of the rollout."""
        return self._tools

    def changed_files(self) -> dict[str, str | None]:
        """Return the texts of files that changed, by path; None for a deleted file."""
        return self.workspace.changed()


class Toolbox:
    """Creates the tools of each rollout. Call ``open`` before use, and ``close`` after.

    ``named`` has the settings of ready-made tools, by tool name. The name
    ``module:function`` stands for a user's function, which takes no settings. ``own``
    are users' functions, and objects with ``@tool`` methods.
    """

    def __init__(
        self,
        named: Mapping[str, Mapping[str, Any]],
        own: Sequence[Any] = (),
        *,
        unsafe_local_exec: bool = False,
    ) -> None:
        self._unsafe_local_exec = unsafe_local_exec
        self._sandbox: Sandbox | None = None
        self._built_in: list[BuiltInTool] = []
        self._own: list[Tool] = []
        for name, settings in named.items():
            if ":" not in name:
                self._built_in.append(_built_in(name, settings))
            elif settings:
                raise ConfigError(f"Tool {name!r} takes no settings.")
            else:
                self._own += _own_tools(load_factory(name, option="--tools"))
        for source in own:
            self._own += _own_tools(source)
        names = Counter(tool.spec.name for tool in self.bench({}).tools())
        if twice := sorted(name for name, count in names.items() if count > 1):
            raise UsageError(f"Two tools are named {twice[0]!r}; rename one.")

    def bench(self, files: Mapping[str, str]) -> Workbench:
        """Return a rollout's environment: its tools, and a workspace with ``files``."""
        workspace = Workspace(
            files, max_characters=_MAX_CHARACTERS, sandbox=self._sandbox
        )
        found = [t for kind in self._built_in for t in bound_tools(kind.on(workspace))]
        return Workbench(workspace, [*found, *self._own])

    def open(self) -> None:
        """Open the sandbox if a tool needs it; this takes a moment."""
        if any(tool.needs_sandbox for tool in self._built_in):
            unsafe = self._unsafe_local_exec
            config = SandboxConfig(
                cache_bytes=0, unsafe_local_exec=unsafe, subprocesses=True
            )
            self._sandbox = Sandbox(config).open()

    def close(self) -> None:
        """Wait for running commands, then close the sandbox."""
        if self._sandbox is not None:
            self._sandbox.close()


def _built_in(name: str, settings: Mapping[str, Any]) -> BuiltInTool:
    if name not in _BUILT_IN:
        hint = "Give a tool of your own as module:function."
        raise NotFoundError("tool", name, _BUILT_IN, hint)
    try:
        return _BUILT_IN[name](**settings)
    except ValidationError as error:
        problems = explain_invalid(error, sorted(_BUILT_IN[name].model_fields))
        raise ConfigError(f"Tool {name!r}: {problems}") from None


def _own_tools(source: Any) -> list[Tool]:
    """Return the tools of a function, a Tool, or an object with ``@tool`` methods."""
    if isinstance(source, Tool):
        return [source]
    if inspect.isfunction(source) or inspect.ismethod(source):
        return [Tool(spec_of(source), _shown(source))]
    if not isinstance(source, type) and (found := bound_tools(source)):
        return [Tool(one.spec, _shown(one.function)) for one in found]
    raise UsageError(
        f"{source!r} is not a tool; give a name, a function, or an object with methods "
        "marked with @tool."
    )


def _shown(function: Callable[..., Any]) -> Callable[..., Awaitable[str]]:
    """Wrap a function: return its result as text, raise its errors as ToolError."""

    async def shown(**arguments: Any) -> str:
        try:
            return result_text(await call(function, **arguments))
        except ToolError:
            raise
        except Exception as error:  # user code; the agent may try again
            raise ToolError(f"{type(error).__name__}: {error}") from error

    return shown
