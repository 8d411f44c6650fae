"""Tools: typed functions with a JSON schema, and the outcomes of calls."""

import inspect
import json
import math
import re
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Annotated, Any, get_origin, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, create_model
from pydantic.errors import PydanticSchemaGenerationError
from pydantic_core import PydanticCustomError

from agentgym.core.files import whole_text
from agentgym.core.json_schema import SchemaArguments, equal, with_parts
from agentgym.errors import (
    RuleViolation,
    ScenarioError,
    ToolError,
    first_problem,
    message_of,
)

RunInPlace = Callable[[dict[str, Any]], Awaitable[Any]]

PENDING: ContextVar[tuple[str, RunInPlace, Any] | None] = ContextVar(
    "agentgym_run_in_place", default=None
)
"""The tool whose call a framework is making, the function that runs the call, and the
function as its author wrote it, whose annotation shows the result's type."""


def pending_run(name: str) -> RunInPlace | None:
    """Return the function that runs the current call of a tool; None outside of one."""
    pending = PENDING.get()
    return None if pending is None or pending[0] != name else pending[1]


def pending_function(name: str) -> Any:
    """Return the author's function of the current call of a tool; None if unknown."""
    pending = PENDING.get()
    return None if pending is None or pending[0] != name else pending[2]


ToolFunction = Callable[..., str | Awaitable[str]]

MALFORMED_CALL = "malformed_call"
"""The tool name that a call gets if it cannot be parsed.

No agent has it, so the framework answers with an error.
"""
_UNREADABLE = "the call could not be read: write it in the form that was asked for"
_MARK = "__agentgym_tool__"
_RENAMED = "__agentgym_renamed__"
_ARGUMENT_LINE = re.compile(r"^\s{4}(\w+)(?:\s*\([^)]*\))?:\s*(.+)$")
_CALLABLE = re.compile(r"[\w./:-]{1,128}")
_INTEGERS = range(-(2**63), 2**63)
_MAX_DEPTH = 200
_FILLED_IN = ("InjectedToolArg", "_DirectlyInjectedToolArg")
_NAMED = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class ToolOutcome(StrEnum):
    """The outcome of one tool call: ``OK`` if the tool ran, or the kind of error."""

    OK = "ok"
    UNKNOWN_TOOL = "unknown_tool"
    MALFORMED = "malformed"
    INVALID_ARGUMENTS = "invalid_arguments"
    RAISED = "raised"
    RULE_BROKEN = "rule_broken"


class Injected(str):
    """The text of an injected fault, which stands for a tool's result.

    Attributes:
        kind: The kind of fault, e.g. ``timeout``.
        outcome: The outcome that is recorded.
    """

    kind: str
    outcome: ToolOutcome

    def __new__(cls, text: str, kind: str, outcome: ToolOutcome) -> "Injected":
        """Return a text with the kind and the outcome of a fault."""
        made = super().__new__(cls, text)
        made.kind, made.outcome = kind, outcome
        return made


@dataclass(frozen=True)
class ToolSpec:
    """A tool's name, schema and description, with validation of its arguments.

    Attributes:
        description: The first paragraph of the function's docstring.
        args_model: Pydantic model of the arguments; unknown arguments are errors.
    """

    name: str
    description: str
    args_model: type[BaseModel]

    @cached_property
    def parameters(self) -> dict[str, Any]:
        """The JSON schema of the arguments, without titles."""
        schema: dict[str, Any] = _without_titles(self.args_model.model_json_schema())
        return schema

    @property
    def arguments(self) -> type[BaseModel] | dict[str, Any]:
        """The pydantic model of the arguments, or their JSON schema.

        The pydantic model of a tool that is known only by its JSON schema has no
        fields. For such a tool, this is the JSON schema.
        """
        by_schema = issubclass(self.args_model, SchemaArguments)
        by_schema = by_schema or bool(getattr(self.args_model, _RENAMED, None))
        return self.parameters if by_schema else self.args_model

    def to_openai(self) -> dict[str, Any]:
        """Return the tool in the format of OpenAI's chat completions."""
        function = {
            "name": self.name,
            "description": self.description,
            "parameters": self.parameters,
        }
        return {"type": "function", "function": function}

    def validate(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """Check ``arguments`` and return them with converted types and defaults.

        Pydantic's lax mode applies: ``"2"`` is accepted as an integer.

        Raises:
            pydantic.ValidationError: An argument is missing, unknown or of a wrong
                type.
        """
        # Iterate over fields, since an argument named "keys" would be taken for
        # dict.keys.
        try:
            read = dict(iter(self.args_model.model_validate(arguments)))
            renamed = getattr(self.args_model, _RENAMED, {})
            return {renamed.get(name, name): value for name, value in read.items()}
        except ValidationError:
            raise
        except Exception as error:
            # a user's validator may raise anything; frameworks report all of it
            problem = PydanticCustomError(
                "value_error", "{error}", {"error": message_of(error)}
            )
            raise ValidationError.from_exception_data(
                self.name, [{"type": problem, "loc": (), "input": arguments}]
            ) from error

    def accepts(self, arguments: dict[str, Any]) -> bool:
        """Return whether :meth:`validate` raises no error."""
        try:
            self.validate(arguments)
        except ValidationError:
            return False
        return True


@dataclass(frozen=True)
class Tool:
    """A tool that runs on the environment of one episode.

    Attributes:
        function: The function to call, sync or async. It returns a text or a JSON value
            for the agent. To refuse a call, it raises
            :class:`~agentgym.errors.ToolError`.
        as_written: Whether the function gets the arguments as the model wrote them,
            because an agent framework validates them. Else it gets the arguments from
            :meth:`ToolSpec.validate`.
    """

    spec: ToolSpec
    function: ToolFunction
    as_written: bool = False

    async def __call__(self, **arguments: Any) -> str:
        """Validate ``arguments``, run the function, and return its result as text."""
        return await self.run(arguments, self.spec.validate(arguments))

    async def run(
        self, arguments: Mapping[str, Any], validated: Mapping[str, Any]
    ) -> str:
        """Run the function with a call's arguments, or with the validated ones."""
        result = self.function(**(arguments if self.as_written else validated))
        return result_text(await result if inspect.isawaitable(result) else result)


def tool[F: Callable[..., Any]](function: F) -> F:
    """Mark a function, or a method of an Environment, as a tool.

    The tool has the function's name. Its description is the docstring's first
    paragraph; its arguments are described in the docstring's ``Args:`` section, in
    Google style. Each argument needs a type annotation. Limits and descriptions from
    pydantic's ``Field`` also apply, in the annotation or as default.

    Raises:
        ScenarioError: The docstring or an annotation is missing, or an annotation
            cannot be used.
    """
    setattr(function, _MARK, spec_of(function))
    return function


def tool_specs(owner: type) -> list[ToolSpec]:
    """Return the specs of all methods that :func:`tool` marks in a class.

    Inherited methods come first. An overridden method is replaced by the new one.
    """
    found: list[ToolSpec] = []
    for klass in reversed(owner.__mro__):
        for value in vars(klass).values():
            spec = getattr(value, _MARK, None)
            if isinstance(spec, ToolSpec):
                found = [s for s in found if s.name != spec.name] + [spec]
    return found


def bound_tools(instance: object) -> list[Tool]:
    """Return the methods of ``instance`` that :func:`tool` marks, as tools."""
    return [Tool(s, getattr(instance, s.name)) for s in tool_specs(type(instance))]


def as_tools(found: Any, what: str) -> list[Tool]:
    """Convert functions, pairs of spec and callable, or a list of these to tools."""
    many = isinstance(found, list | tuple) and not _is_pair(found)
    tools = [_as_tool(each, what) for each in (found if many else [found])]
    if not tools:
        raise ScenarioError(f"{what} is empty: put functions with types into it.")
    names = [tool.spec.name for tool in tools]
    for name in names:
        if names.count(name) > 1:
            raise ScenarioError(f"{what} has two tools named {name!r}: rename one.")
    return tools


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple) and bool(value) and isinstance(value[0], ToolSpec)


def _as_tool(value: Any, what: str) -> Tool:
    match value:
        case Tool():
            return value
        case (ToolSpec() as spec, function) if callable(function):
            return Tool(spec, function)
    if not inspect.isroutine(value):
        raise ScenarioError(
            f"{what} holds {value!r} ({type(value).__name__}): give functions with "
            "types and a docstring, schemas or classes of arguments, or pairs "
            "(ToolSpec, callable)."
        )
    if isinstance(marked := getattr(value, _MARK, None), ToolSpec):
        return Tool(marked, value)
    return Tool(spec_of(value, is_strict=False), value)


def spec_of(function: Callable[..., Any], *, is_strict: bool = True) -> ToolSpec:
    """Derive a :class:`ToolSpec` from a function.

    Raise ScenarioError if an annotation is unusable, or, if ``is_strict``, missing.
    """
    name = function.__name__
    doc = inspect.getdoc(function) or ""
    if not doc and is_strict:
        raise ScenarioError(f"Tool {name!r} has no docstring; write one sentence.")
    described = _described_arguments(doc)
    try:
        hints = get_type_hints(function, include_extras=True)
    except NameError as error:
        raise ScenarioError(
            f"The type annotations of tool {name!r} cannot be read: {error}. Use types "
            "that are defined at the top of its module."
        ) from None
    fields: dict[str, Any] = {}
    renamed: dict[str, str] = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind not in _NAMED:
            raise ScenarioError(
                f"Argument '{parameter}' of tool {name!r} cannot be given by name; "
                "write out every argument."
            )
        if parameter.name not in hints and is_strict:
            raise ScenarioError(
                f"Argument {parameter.name!r} of tool {name!r} has no type annotation; "
                f"write for instance {parameter.name}: str."
            )
        hint = hints.get(parameter.name, Any)
        if _is_filled_in(hint):
            continue
        if parameter.name in described:
            hint = Annotated[hint, Field(description=described[parameter.name])]
        missing = parameter.default is inspect.Parameter.empty
        field_name = parameter.name
        if hasattr(BaseModel, field_name) or field_name.startswith("_"):
            # pydantic allows no field of this name, only an alias
            field_name = f"argument_{len(fields)}"
            renamed[field_name] = parameter.name
            hint = Annotated[hint, Field(alias=parameter.name)]
        fields[field_name] = (hint, ... if missing else parameter.default)
    config = ConfigDict(extra="forbid", allow_inf_nan=False)
    try:
        model = create_model(name, __config__=config, **fields)
    except PydanticSchemaGenerationError as error:
        raise ScenarioError(
            f"An argument of tool {name!r} has a type that JSON cannot hold: "
            f"{error.message.partition('. ')[0]}. Let a model give text, numbers, "
            "lists or dicts."
        ) from None
    setattr(model, _RENAMED, renamed)
    return ToolSpec(name, " ".join(doc.split("\n\n")[0].split()), model)


def _is_filled_in(hint: Any) -> bool:
    """Return whether a framework fills in an argument and hides it from the model."""
    # By name, since the core must not import LangChain.
    marks = [*getattr(hint, "__metadata__", ()), get_origin(hint) or hint]
    kinds = [mark if isinstance(mark, type) else type(mark) for mark in marks]
    return any(base.__name__ in _FILLED_IN for kind in kinds for base in kind.__mro__)


def parse_arguments(raw: str) -> dict[str, Any] | None:
    """Parse the arguments of a tool call ("" is {}); return None if malformed."""
    try:
        value = json.loads(raw or "{}")
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and is_recordable(value) else None


def is_recordable(value: Any, depth: int = 0) -> bool:
    """Return whether any JSON parser can read a value that Python parsed from JSON."""
    # Python also accepts integers beyond 64 bits, NaN, infinities and unpaired
    # surrogates.
    if isinstance(value, str):
        return whole_text(value) == value
    if isinstance(value, int):
        return value in _INTEGERS
    if isinstance(value, float):
        return math.isfinite(value)
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, list):
        inner = depth + 1
        return inner < _MAX_DEPTH and all(is_recordable(v, inner) for v in value)
    return True


def result_text(result: Any) -> str:
    """Return a tool's result as text for the agent; convert other types to JSON."""
    if isinstance(result, str):
        return result
    return json.dumps(result, ensure_ascii=False, default=str)


def same_arguments(
    spec: ToolSpec | None,
    one: Mapping[str, Any],
    other: Mapping[str, Any],
    *,
    without: frozenset[str] = frozenset(),
) -> bool:
    """Return whether a tool reads two calls' arguments as the same values.

    Defaults and convertible types (``"7"`` for 7) make no difference. Arguments named
    in ``without`` are not compared.
    """

    def rest(arguments: Mapping[str, Any]) -> dict[str, Any]:
        return {n: v for n, v in arguments.items() if n not in without}

    if equal(rest(one), rest(other)):
        return True
    return equal(rest(as_read(spec, dict(one))), rest(as_read(spec, dict(other))))


def as_read(spec: ToolSpec | None, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return a call's arguments as the tool reads them; invalid ones unchanged."""
    if spec is None:
        return arguments
    try:
        validated = spec.validate(arguments)
    except ValidationError:
        return arguments
    if issubclass(spec.args_model, SchemaArguments):
        return spec.args_model.as_read(validated)
    return validated


def check_call(
    specs: dict[str, ToolSpec], name: str, raw_arguments: str
) -> tuple[ToolOutcome, str]:
    """Check a call before it runs; return its outcome, and the reason unless ``OK``."""
    if name not in specs:
        return _missing(name)
    arguments = parse_arguments(raw_arguments)
    if arguments is None:
        return ToolOutcome.MALFORMED, "the arguments are not a JSON object"
    try:
        specs[name].validate(arguments)
    except ValidationError as error:
        return ToolOutcome.INVALID_ARGUMENTS, first_problem(error)
    return ToolOutcome.OK, ""


def name_fault(name: Any) -> str:
    """Return how to change a name by which no model can call a tool; "" if one can."""
    # Some providers allow fewer characters; the names of MCP servers often have dots.
    if isinstance(name, str) and _CALLABLE.fullmatch(name):
        return ""
    return "use letters, digits and any of _ - . / :, at most 128 of them"


def _missing(name: str) -> tuple[ToolOutcome, str]:
    if name == MALFORMED_CALL:
        return ToolOutcome.MALFORMED, _UNREADABLE
    return ToolOutcome.UNKNOWN_TOOL, f"no tool is named {name!r}"


async def run_tool(
    tools: Mapping[str, Tool], name: str, arguments: dict[str, Any]
) -> tuple[ToolOutcome, str]:
    """Run a tool call; return its outcome and the result as text for the agent.

    A refused call's text starts with ``Error:``. Any other exception of the tool's code
    is raised.
    """
    if name not in tools:
        outcome, why = _missing(name)
        return outcome, f"Error: {why}."
    try:
        validated = tools[name].spec.validate(arguments)
    except ValidationError as error:
        return ToolOutcome.INVALID_ARGUMENTS, f"Error: {first_problem(error)}"
    try:
        text = await tools[name].run(arguments, validated)
        return text.outcome if isinstance(text, Injected) else ToolOutcome.OK, text
    except RuleViolation as error:
        return ToolOutcome.RULE_BROKEN, f"Error: {error}"
    except ToolError as error:
        return ToolOutcome.RAISED, f"Error: {error}"


def _described_arguments(doc: str) -> dict[str, str]:
    _, _, section = doc.partition("Args:\n")
    found: dict[str, str] = {}
    name = ""
    for line in section.split("\n\n")[0].splitlines():
        if match := _ARGUMENT_LINE.match(line):
            name = match[1]
            found[name] = match[2].strip()
        elif name and line.startswith(" " * 8):
            found[name] += f" {line.strip()}"
    return found


def _without_titles(schema: Any) -> Any:
    made = with_parts(schema, _without_titles)
    if isinstance(made, dict) and isinstance(made.get("title"), str):
        del made["title"]
    return made
