"""Convert records of public function-calling data sets to lines of a tasks file.

Three formats are recognised by their keys. *xLAM* (Salesforce,
``xlam-function-calling-60k``) has ``query``, ``tools`` and ``answers``, the last two as
JSON text. *ToolACE* (``Team-ACE/ToolACE``) has ``system``, with the functions as
JSON in the text, and ``conversations``, with calls in Python's notation. *Hermes*
(NousResearch, ``hermes-function-calling-v1``) has ``conversations`` with calls in
``<tool_call>`` tags. Its functions are in ``tools``, or in a ``<tools>`` tag of the
system message.
"""

import ast
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Annotated, Any

from pydantic import BaseModel, BeforeValidator, Field, ValidationError, model_validator
from pydantic import TypeAdapter as Adapter

from agentgym.core.formats.literals import Unreadable, read_literal, skip_space
from agentgym.errors import first_problem
from agentgym.scenarios.tool_tasks.lines import BrokenLineError, shown

# By type of JSON schemas: these data sets' names of it, and Python's types.
_KINDS: dict[str, tuple[str, tuple[type, ...]]] = {
    "string": ("str string", (str,)),
    "integer": ("int integer", (int,)),
    "number": ("float number double", (int, float)),
    "boolean": ("bool boolean", (bool,)),
    "array": ("list array tuple set", (list,)),
    "object": ("dict object", (dict,)),
}
_TYPES = {word: kind for kind, (words, _) in _KINDS.items() for word in words.split()}
_WORD = re.compile(r"\w+")
_TOOL_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
_TOOLS = re.compile(r"<tools>(.*?)</tools>", re.DOTALL)
_RESPONSE = re.compile(r"<tool_response>(.*?)</tool_response>", re.DOTALL)
_KEY = re.compile(r"\s*([^=(),]+?)\s*=\s*")
_USERS, _AGENTS = ("user", "human"), ("assistant", "gpt")


def _value(text: Any) -> Any:
    """Parse a text as JSON or as a Python literal; return other values unchanged."""
    if not isinstance(text, str):
        return text
    try:
        return json.loads(text)
    except ValueError:
        pass
    try:
        return ast.literal_eval(text.strip()) if text.strip() else None
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        raise ValueError(
            f"{shown(text)} is neither JSON nor a value of Python"
        ) from None


class _Function(BaseModel):
    """A function that a record offers; its arguments by name, with their schemas."""

    name: str
    description: str | None = None
    properties: dict[str, dict[str, Any] | None] = {}
    required: list[str] = []

    @model_validator(mode="before")
    @classmethod
    def _unnested(cls, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        function = given.get("function", given)
        parameters = function.get("parameters") or {}
        if not isinstance(parameters, dict):
            raise ValueError(f"the parameters are {shown(parameters)}, not an object")
        found = {key: function.get(key) for key in ("name", "description")}
        if "properties" in parameters:
            required = parameters.get("required") or []
            return {
                **found,
                "properties": parameters["properties"] or {},
                "required": required,
            }
        # xLAM has the arguments themselves.
        needed = [
            name
            for name, value in parameters.items()
            if isinstance(value, dict)
            and "default" not in value
            and "optional" not in str(value.get("type"))
        ]
        return {**found, "properties": parameters, "required": needed}


class _Call(BaseModel):
    name: str
    arguments: Annotated[dict[str, Any], BeforeValidator(_value)] = {}


class _Message(BaseModel):
    speaker: str = Field(alias="from")
    value: str


_Functions = Annotated[list[_Function], BeforeValidator(_value)]


class _Xlam(BaseModel):
    query: str
    tools: _Functions
    answers: Annotated[list[_Call], BeforeValidator(_value)]


class _Conversation(BaseModel):
    conversations: list[_Message]
    system: str | None = None
    tools: Annotated[list[_Function] | None, BeforeValidator(_value)] = None

    @property
    def prompt(self) -> str:
        """The system prompt."""
        said = (each.value for each in self.conversations if each.speaker == "system")
        return self.system or next(said, "")


# Parses the calls in an agent's message.
_Read = Callable[[str, Sequence[_Function]], list[_Call]]


def as_task_line(record: dict[str, Any]) -> dict[str, Any]:
    """Convert a record of a known data set to a line of a tasks file.

    Other objects are returned unchanged. A conversation gives its first request that
    needs calls, with the calls up to the user's next message.
    """
    kind = "xLAM"
    try:
        if "query" in record and "answers" in record:
            found = _Xlam.model_validate(record)
            line: dict[str, Any] = {
                "instruction": found.query,
                "expect": [_expected(call) for call in found.answers],
                "ordered": False,
            }
            tools = found.tools
        elif "conversations" not in record:
            return record
        else:
            kind = "conversations"
            talk = _Conversation.model_validate(record)
            is_marked = "<tool" in talk.prompt or "tools" in record
            kind = "Hermes" if is_marked else "ToolACE"
            read, listed = (
                (_marked, _marked_tools) if is_marked else (_pythonic, _listed_tools)
            )
            tools = talk.tools or Adapter(_Functions).validate_python(
                listed(talk.prompt)
            )
            line = _first_request(talk, read, tools)
    except ValueError as error:
        why = str(error)
        if isinstance(error, ValidationError):
            why = first_problem(error)
        raise BrokenLineError(f"this {kind} record is malformed: {why}") from None
    calls = line["expect"]
    if not calls:
        raise BrokenLineError(
            f"this {kind} record calls no function, so doing nothing would be paid: "
            "leave it out"
        )
    line["tools"] = [
        _tool(each, [c["args"] for c in calls if c["tool"] == _name(each.name)])
        for each in tools
    ]
    if isinstance(record.get("id"), str | int):
        line["id"] = record["id"]
    return line


def _expected(call: _Call) -> dict[str, Any]:
    return {"tool": _name(call.name), "args": call.arguments}


def _tool(function: _Function, given: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Convert a data set's function to a tool, without types that calls contradict."""
    return {
        "type": "function",
        "function": {
            "name": _name(function.name),
            "description": function.description or "",
            "parameters": {
                "type": "object",
                "properties": {
                    name: _schema(value or {}, [g[name] for g in given if name in g])
                    for name, value in function.properties.items()
                },
                "required": [
                    name
                    for name in function.required
                    if all(name in each for each in given)
                ],
            },
        },
    }


def _schema(value: Any, given: Sequence[Any]) -> dict[str, Any]:
    """Convert a data set's description of an argument to a JSON schema."""
    found: dict[str, Any] = {}
    if isinstance(text := value.get("description"), str):
        found["description"] = text
    word = _WORD.match(str(value.get("type", "")).strip().lower())
    kind = _TYPES.get(word[0]) if word else None
    if kind is not None and all(_fits(kind, each) for each in given):
        found["type"] = kind
    choices = value.get("enum")
    if isinstance(choices, list) and choices and all(g in choices for g in given):
        found["enum"] = choices
    return found


def _fits(kind: str, value: Any) -> bool:
    if isinstance(value, bool) and kind != "boolean":
        return False
    return isinstance(value, _KINDS[kind][1])


def _name(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "_", name.strip())[:64]


def _first_request(
    talk: _Conversation, read: _Read, tools: Sequence[_Function]
) -> dict[str, Any]:
    """Return the first request of a conversation that needs calls, with its calls."""
    said: list[str] = []
    calls: list[dict[str, Any]] = []
    unanswered: list[dict[str, Any]] = []
    turns = 0
    for message in talk.conversations:
        if message.speaker in _USERS:
            if calls:
                break
            said.append(message.value.strip())
        elif message.speaker in _AGENTS:
            unanswered = [_expected(call) for call in read(message.value, tools)]
            calls += unanswered
            turns += bool(unanswered)
        elif message.speaker == "tool":
            answers = list(_answers(message.value))
            if len(answers) == len(unanswered):
                for call, answer in zip(unanswered, answers, strict=True):
                    call["answer"] = answer
            unanswered = []
    return {"instruction": "\n\n".join(said), "expect": calls, "ordered": turns > 1}


def _marked_tools(prompt: str) -> str:
    """Return the text in the last ``<tools>`` tag of a system prompt."""
    # The prompt also mentions the marks.
    found = [text for text in _TOOLS.findall(prompt) if "{" in text]
    if not found:
        raise ValueError("it has no functions, in `tools` or in <tools> of its system")
    return str(found[-1])


def _listed_tools(system: str) -> list[Any]:
    """Return the first JSON list of functions in a system message."""
    decoder = json.JSONDecoder()
    for found in re.finditer(r"\[\s*\{", system):
        try:
            value, _ = decoder.raw_decode(system, found.start())
        except json.JSONDecodeError:
            continue
        if isinstance(value, list):
            return value
    raise ValueError(
        "it has `conversations`, and neither `tools` (as Hermes) nor a list of "
        "functions in its `system` (as ToolACE)"
    )


def _marked(text: str, functions: Sequence[_Function]) -> list[_Call]:
    """Parse the calls in ``<tool_call>`` tags, written as JSON or as Python dicts."""
    return [_Call.model_validate(_value(each)) for each in _TOOL_CALL.findall(text)]


def _pythonic(text: str, functions: Sequence[_Function]) -> list[_Call]:
    """Parse calls such as ``[Some Name(key="value")]``; return [] for other texts."""
    text = text.strip()
    names = (function.name for function in functions)
    ordered = sorted(names, key=len, reverse=True)
    at = skip_space(text, 1)
    if not text.startswith("[") or not any(text.startswith(n, at) for n in ordered):
        return []
    calls = []
    try:
        while not text.startswith("]", at):
            name = next((n for n in ordered if text.startswith(f"{n}(", at)), None)
            if name is None:
                raise Unreadable
            at = skip_space(text, at + len(name) + 1)
            arguments: dict[str, Any] = {}
            while not text.startswith(")", at):
                key = _KEY.match(text, at)
                if key is None:
                    raise Unreadable
                arguments[key[1]], at = read_literal(text, key.end())
                at = _after_comma(text, at)
            calls.append(_Call(name=name, arguments=arguments))
            at = _after_comma(text, at + 1)
    except (Unreadable, IndexError):
        raise ValueError(
            f"{shown(text)} is an answer, not calls of its functions as in "
            '[name(key="value")]'
        ) from None
    return calls


def _after_comma(text: str, at: int) -> int:
    at = skip_space(text, at)
    if text.startswith(",", at):
        return skip_space(text, at + 1)
    if text[at] not in ")]":
        raise Unreadable
    return at


def _answers(text: str) -> Iterator[Any]:
    """Yield the answer to each call from a message with the functions' answers."""
    parts = _RESPONSE.findall(text)
    try:
        values = [_value(part) for part in parts or [text]]
    except ValueError:
        yield text.strip()
        return
    if not parts and isinstance(values[0], list):
        values = values[0]
    for value in values:
        if isinstance(value, Mapping):
            value = value.get("content", value.get("results", value))
        yield value
