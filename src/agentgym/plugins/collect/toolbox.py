"""Toolbox: the ready-made tools, and the tools of each rollout by name or function."""

import ast
import inspect
import math
import operator
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, ValidationError

from agentgym.core.background import call
from agentgym.core.settings import explain_invalid
from agentgym.core.tools import Tool, bound_tools, result_text, spec_of, tool
from agentgym.errors import ConfigError, NotFoundError, ToolError, UsageError
from agentgym.integrations.registry import load_factory
from agentgym.sandbox import Sandbox, SandboxConfig
from agentgym.sandbox.workspace import Workspace
from agentgym.scenarios.base import Environment

Number = int | float
_MOST_DIGITS = 100  # of rounding
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


class BuiltInTool(BaseModel):
    """Base class of ready-made tools.

    Its fields are settings, and one method, marked ``@tool``, is the tool.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    needs_sandbox: ClassVar[bool] = False  # whether the tool runs programs
    _workspace: Workspace = PrivateAttr()

    def on(self, workspace: Workspace) -> Self:
        """Return a copy of the tool that uses the files of a rollout's workspace."""
        bound = self.model_copy()
        bound._workspace = workspace
        return bound


class Bash(BuiltInTool):
    """Runs commands in the sandbox; later commands see changed text files."""

    needs_sandbox: ClassVar[bool] = True
    timeout_s: float = Field(default=10.0, gt=0, le=600)  # then a command is ended
    max_output: int = Field(default=10_000, ge=100)  # characters that the agent sees
    shell: str = "bash"  # the program that is called with ``-c COMMAND``

    @tool
    async def bash(self, command: str) -> str:
        """Run a bash command in the workspace folder, without network.

        Each command starts in the workspace folder with a fresh shell. Only text
        files in that folder are kept from one command to the next.

        Args:
            command: The command line.
        """
        if "\0" in command:
            raise ToolError("a command cannot hold a NUL character.")
        argv = (self.shell, "-c", command)
        result = (await self._workspace.run(argv, self.timeout_s)).checked()
        parts = [result.stdout.rstrip(), result.stderr.rstrip()]
        if result.timed_out:
            parts.append(f"(ended after {self.timeout_s:g} s; nothing was kept)")
        elif result.status == "killed":
            why = result.error or f"signal {result.signal}"
            parts.append(f"(killed: {why})")
        elif result.exit_code:
            parts.append(f"(exit code {result.exit_code})")
        text = "\n".join(part for part in parts if part)
        return _cut(text, self.max_output) or "(no output)"


class FileEditor(BuiltInTool):
    """Edits text files; every path stays inside the workspace."""

    max_output: int = Field(default=16_000, ge=100)  # characters seen at once

    @tool
    def file_editor(
        self,
        command: Literal["view", "create", "str_replace", "insert"],
        path: str,
        file_text: str = "",
        old_str: str = "",
        new_str: str = "",
        insert_line: int = 0,
        first_line: int = 1,
        last_line: int = -1,
    ) -> str:
        """View, create or edit a text file in the workspace.

        Args:
            command: view a file or folder; create a file with file_text; str_replace
                the one occurrence of old_str by new_str; or insert new_str.
            path: Relative to the workspace.
            file_text: The text of the file to create.
            old_str: The text to replace; it must occur exactly once.
            new_str: The new text.
            insert_line: The line after which new_str is put, 0 for the beginning.
            first_line: The first line to view.
            last_line: The last line to view, -1 for the end.
        """
        match command:
            case "view":
                return self._view(path, first_line, last_line)
            case "create":
                return f"Wrote {self._workspace.write(path, file_text)}."
            case "str_replace":
                name = self._workspace.file(path)
                self._workspace.replace(name, old_str, new_str)
                return f"Edited {name}."
            case "insert":
                return self._insert(path, insert_line, new_str)

    def _view(self, path: str, first: int, last: int) -> str:
        name = self._workspace.resolve(path)
        found = self._workspace.below(name)
        if name not in self._workspace.files and (found or name == "."):
            listing = "\n".join(found) or "(the workspace is empty)"
            return _cut(listing, self.max_output)
        lines = self._workspace.files[self._workspace.file(path)].splitlines()
        end = len(lines) if last == -1 else min(last, len(lines))
        if first < 1 or (last != -1 and last < first):
            raise ToolError(f"lines {first} to {last} are not a range.")
        if first > max(1, len(lines)):
            raise ToolError(f"{name} has {len(lines)} lines.")
        numbered = [f"{n:>5}  {lines[n - 1]}" for n in range(first, end + 1)]
        return _cut("\n".join(numbered), self.max_output) or "(empty)"

    def _insert(self, path: str, after: int, text: str) -> str:
        name = self._workspace.file(path)
        lines = self._workspace.files[name].splitlines(keepends=True)
        if not 0 <= after <= len(lines):
            raise ToolError(f"{name} has {len(lines)} lines; {after} is none of them.")
        if after and not lines[after - 1].endswith("\n"):
            lines[after - 1] += "\n"
        lines.insert(after, text if text.endswith("\n") else text + "\n")
        self._workspace.write(name, "".join(lines))
        return f"Inserted after line {after} of {name}."


class Search(BuiltInTool):
    """Searches for a text, ignoring case."""

    texts: dict[str, str] = Field(default_factory=dict)
    """Texts to search in addition to the workspace's files, by name."""
    max_matches: int = Field(default=20, ge=1)  # lines shown
    max_line: int = Field(default=300, ge=20)  # characters shown of a line

    @tool
    def search(self, query: str, path: str = ".") -> str:
        """Search texts and files for a text, ignoring case.

        Args:
            query: The text to find.
            path: The file or folder to search; "." for everything.
        """
        wanted = query.strip().casefold()
        if not wanted:
            raise ToolError("the query is empty.")
        found = [
            f"{name}:{number}: {_cut(line.strip(), self.max_line)}"
            for name, text in self._sources(path)
            for number, line in enumerate(text.splitlines(), 1)
            if wanted in line.casefold()
        ]
        if not found:
            return f"No line holds {query!r}."
        shown = found[: self.max_matches]
        if len(found) > len(shown):
            shown.append(f"({len(found) - len(shown)} more)")
        return "\n".join(shown)

    def _sources(self, path: str) -> Iterator[tuple[str, str]]:
        folder = self._workspace.resolve(path)
        files = self._workspace.files
        if folder == ".":
            yield from self.texts.items()
        elif folder in self.texts:
            yield folder, self.texts[folder]
            return
        names = [folder] if folder in files else self._workspace.below(folder)
        if not names and folder != ".":
            raise ToolError(f"there is no file or folder {folder}.")
        for name in names:
            yield name, files[name]


def _cut(text: str, limit: int) -> str:
    """Return ``text`` with its middle left out if it exceeds ``limit`` characters."""
    if len(text) <= limit:
        return text
    half = limit // 2
    left_out = len(text) - 2 * half
    return f"{text[:half]}\n... ({left_out} characters left out) ...\n{text[-half:]}"


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
        return _value(ast.parse(expression.strip(), mode="eval").body, max_bits)
    except (
        *(SyntaxError, ArithmeticError, ValueError, TypeError),
        *(MemoryError, RecursionError),  # it is nested too deeply
    ) as error:
        raise ToolError(f"{expression!r} cannot be calculated: {error}.") from None


def _value(node: ast.expr, max_bits: int) -> Number:
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
        raise ValueError(f"{ast.unparse(node)!r} is not arithmetic")
    numbers = [_value(part, max_bits) for part in parts]
    if name == "round" and any(abs(n) > _MOST_DIGITS for n in numbers[1:]):
        raise ValueError(f"round takes at most {_MOST_DIGITS} digits")
    if name is ast.Pow and all(isinstance(n, int) for n in numbers):
        base, exponent = abs(numbers[0]), abs(numbers[1])
        if base > 1 and (int(base).bit_length() - 1) * exponent > max_bits:
            raise ValueError("a power in it is too large")
    return _bounded(_FUNCTIONS[name](*numbers), max_bits)


def _bounded(number: Number, max_bits: int) -> Number:
    if isinstance(number, complex):
        raise ValueError("the result is not a real number")
    if isinstance(number, int):
        fits = number.bit_length() <= max_bits
    else:
        fits = math.isfinite(number)
    if not fits:
        raise ValueError("a number in it is too large")
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
