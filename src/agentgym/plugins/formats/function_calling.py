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
from dataclasses import dataclass, field
from typing import Any

from agentgym.core.formats.literals import Unreadable, read_literal, skip_space
from agentgym.scenarios.tool_tasks.lines import BrokenLineError, shown

_KINDS: dict[str, tuple[str, tuple[type, ...]]] = {
    "string": ("str string", (str,)),
    "integer": ("int integer", (int,)),
    "number": ("float number double", (int, float)),
    "boolean": ("bool boolean", (bool,)),
    "array": ("list array tuple set", (list,)),
    "object": ("dict object", (dict,)),
}
"""By type of JSON schemas: these data sets' names of it, and Python's types."""
_TYPES = {word: kind for kind, (words, _) in _KINDS.items() for word in words.split()}
_WORD = re.compile(r"\w+")
_TOOL_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
_TOOLS = re.compile(r"<tools>(.*?)</tools>", re.DOTALL)
_RESPONSE = re.compile(r"<tool_response>(.*?)</tool_response>", re.DOTALL)
_KEY = re.compile(r"\s*([^=(),]+?)\s*=\s*")
_USERS, _AGENTS = ("user", "human"), ("assistant", "gpt")


@dataclass
class _Asked:
    """The first request of a conversation that needs calls.

    Attributes:
        calls: The keys ``tool``, ``args`` and, if known, ``answer`` of each call.
        turns: Number of the agent's messages with calls.
    """

    instruction: str
    calls: list[dict[str, Any]] = field(default_factory=list)
    turns: int = 0


_Read = Callable[[str, Sequence[str]], list[dict[str, Any]]]
"""Parses the calls in an agent's message, given the names of the functions."""


def as_task_line(record: dict[str, Any]) -> dict[str, Any]:
    """Convert a record of a known data set to a line of a tasks file.

    Other objects are returned unchanged. A conversation gives its first request that
    needs calls, with the calls up to the user's next message.
    """
    if "query" in record and "answers" in record:
        return _line(record, _xlam(record), record.get("tools"), "xLAM")
    if "conversations" not in record:
        return record
    system = _system(record)
    if "<tool" in system or "tools" in record:
        tools = record.get("tools") or _marked_tools(system)
        return _line(record, _conversation(record, _marked, tools), tools, "Hermes")
    tools = _listed_tools(system)
    return _line(record, _conversation(record, _pythonic, tools), tools, "ToolACE")


def _line(
    record: Mapping[str, Any], asked: _Asked, tools: Any, kind: str
) -> dict[str, Any]:
    """Return the line of a tasks file for a request, with tools in OpenAI's format."""
    if not asked.calls:
        raise BrokenLineError(
            f"this {kind} record calls no function, so doing nothing would be paid: "
            "leave it out"
        )
    made = []
    for tool in _parsed(tools, "`tools`", kind):
        function = tool.get("function", tool) if isinstance(tool, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(
            function.get("name"), str
        ):
            raise BrokenLineError(
                f"this {kind} record has {shown(tool)} among its tools, not a function "
                "with a name"
            )
        given = [c["args"] for c in asked.calls if c["tool"] == function["name"]]
        made.append(_function(function, given))
    line = {
        "instruction": asked.instruction,
        "tools": made,
        "expect": [{**call, "tool": _name(call["tool"])} for call in asked.calls],
        "ordered": asked.turns > 1,
    }
    if isinstance(record.get("id"), str | int):
        line["id"] = record["id"]
    return line


def _object(value: Any, name: str) -> Mapping[str, Any]:
    """Check that a part of a schema is a JSON object, and return it; {} for None."""
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise BrokenLineError(f"{name} of a function is {value!r}, not an object")
    return value


def _function(
    function: Mapping[str, Any], given: Sequence[Mapping[str, Any]]
) -> dict[str, Any]:
    """Convert a data set's function to a tool, without types that calls contradict."""
    parameters = _object(function.get("parameters"), "parameters")
    # xLAM has the arguments themselves.
    listed = _object(parameters.get("properties", parameters), "properties")
    properties = {name: _object(each, name) for name, each in listed.items()}
    needed = (
        name
        for name, value in properties.items()
        if "default" not in value and "optional" not in str(value.get("type"))
    )
    required = needed if listed is parameters else parameters.get("required") or ()
    return {
        "type": "function",
        "function": {
            "name": _name(str(function["name"])),
            "description": str(function.get("description") or ""),
            "parameters": {
                "type": "object",
                "properties": {
                    name: _schema(value, [g[name] for g in given if name in g])
                    for name, value in properties.items()
                },
                "required": [n for n in required if all(n in each for each in given)],
            },
        },
    }


def _schema(value: Any, given: Sequence[Any]) -> dict[str, Any]:
    """Convert a data set's description of an argument to a JSON schema."""
    if not isinstance(value, Mapping):
        return {}
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


def _xlam(record: Mapping[str, Any]) -> _Asked:
    if not isinstance(record["query"], str):
        raise BrokenLineError(
            f"this xLAM record has the `query` {shown(record['query'])}, not a text"
        )
    calls = _parsed(record["answers"], "`answers`", "xLAM")
    return _Asked(record["query"], [_call(each, "xLAM") for each in calls], 1)


def _conversation(record: Mapping[str, Any], read: _Read, tools: Any) -> _Asked:
    """Return the first request of a conversation that needs calls, with its calls."""
    names = [
        str(each.get("function", each).get("name"))
        for each in _parsed(tools, "the list of functions", "conversation's")
        if isinstance(each, Mapping) and isinstance(each.get("function", each), Mapping)
    ]
    said: list[str] = []
    asked = _Asked("")
    open_calls: list[dict[str, Any]] = []
    for speaker, text in _messages(record):
        if speaker in _USERS:
            if asked.calls:
                break
            said.append(text.strip())
        elif speaker in _AGENTS:
            open_calls = read(text, names)
            asked.calls += open_calls
            asked.turns += bool(open_calls)
        elif speaker == "tool":
            answers = list(_answers(text))
            if len(answers) == len(open_calls):
                for call, answer in zip(open_calls, answers, strict=True):
                    call["answer"] = answer
            open_calls = []
    asked.instruction = "\n\n".join(said)
    return asked


def _messages(record: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    conversations = record["conversations"]
    if not isinstance(conversations, list):
        raise BrokenLineError(
            f"`conversations` is {shown(conversations)}, not a list of messages"
        )
    for place, message in enumerate(conversations):
        given = message if isinstance(message, Mapping) else {}
        speaker, text = given.get("from"), given.get("value")
        if not isinstance(speaker, str) or not isinstance(text, str):
            raise BrokenLineError(
                f"conversations[{place}] is {shown(message)}, not "
                '{"from": "…", "value": "…"}'
            )
        yield speaker, text


def _system(record: Mapping[str, Any]) -> str:
    found = record.get("system")
    first = next((t for who, t in _messages(record) if who == "system"), "")
    return found if isinstance(found, str) else first


def _marked_tools(system: str) -> list[Any]:
    """Return the functions in the last ``<tools>`` tag of a system message."""
    found = [
        text.strip()
        for text in _TOOLS.findall(system)
        if "{" in text  # the text also mentions the marks
    ]
    if not found:
        raise BrokenLineError(
            "this Hermes record has no functions, in `tools` or in the <tools> of its "
            "system text"
        )
    return _parsed(found[-1], "<tools>", "Hermes")


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
    raise BrokenLineError(
        "it has `conversations`, and neither `tools` (as Hermes) nor a list of "
        "functions in its `system` (as ToolACE)"
    )


def _marked(text: str, names: Sequence[str]) -> list[dict[str, Any]]:
    """Parse the calls in ``<tool_call>`` tags, written as JSON or as Python dicts."""
    return [
        _call(_value(found.strip(), "<tool_call>"), "Hermes")
        for found in _TOOL_CALL.findall(text)
    ]


def _pythonic(text: str, names: Sequence[str]) -> list[dict[str, Any]]:
    """Parse calls such as ``[Some Name(key="value")]``; return [] for other texts."""
    text = text.strip()
    ordered = sorted(names, key=len, reverse=True)
    at = skip_space(text, 1)
    if not text.startswith("[") or not any(text.startswith(n, at) for n in names):
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
            calls.append({"tool": name, "args": arguments})
            at = _after_comma(text, at + 1)
    except (Unreadable, IndexError):
        raise BrokenLineError(
            f"this ToolACE record has the answer {shown(text)}, not calls of its "
            'functions as in [name(key="value")]'
        ) from None
    return calls


def _after_comma(text: str, at: int) -> int:
    at = skip_space(text, at)
    if text.startswith(",", at):
        return skip_space(text, at + 1)
    if text[at] not in ")]":
        raise Unreadable
    return at


def _call(value: Any, kind: str) -> dict[str, Any]:
    given = value if isinstance(value, Mapping) else {}
    name, arguments = given.get("name"), given.get("arguments", {})
    if isinstance(arguments, str):
        arguments = _value(arguments, "`arguments`")
    if not isinstance(name, str) or not isinstance(arguments, dict):
        raise BrokenLineError(
            f"this {kind} record has {shown(value)} among its calls, not "
            '{"name": "…", "arguments": {…}}'
        )
    return {"tool": name, "args": arguments}


def _answers(text: str) -> Iterator[Any]:
    """Yield the answer to each call from a message with the functions' answers."""
    parts = _RESPONSE.findall(text)
    try:
        values = [_value(part.strip(), "an answer") for part in parts or [text]]
    except BrokenLineError:
        yield text.strip()
        return
    if not parts and isinstance(values[0], list):
        values = values[0]
    for value in values:
        if isinstance(value, Mapping):
            value = value.get("content", value.get("results", value))
        yield value


def _parsed(value: Any, where: str, kind: str) -> list[Any]:
    """Return a list that is given as a list, as JSON text or as a Python literal."""
    found = _value(value, f"{where} of this {kind} record") if value else value
    if not isinstance(found, list):
        raise BrokenLineError(
            f"{where} of this {kind} record is {shown(value)}, not a list"
        )
    return found


def _value(text: Any, where: str) -> Any:
    """Parse a text as JSON or as a Python literal; return other values unchanged."""
    if not isinstance(text, str):
        return text
    try:
        return json.loads(text)
    except ValueError:
        pass
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        raise BrokenLineError(
            f"{where} is {shown(text)}, neither JSON nor a value of Python"
        ) from None
