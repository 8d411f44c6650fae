"""Parse messages of OpenAI, LangChain, Anthropic, Google, Vercel and OpenTelemetry.

LangChain has three formats: ``{"lc": 1, "id": […, "AIMessage"], "kwargs": {…}}`` from
``dumpd``, the older ``{"type": "ai", "data": {…}}``, and an object with ``type`` and
the message's fields. OpenTelemetry has ``{"role": …, "parts": […]}``
(``gen-ai-input-messages.json`` of its semantic conventions). OpenInference wraps each
object of OpenAI's format, as in ``{"message": {…}}`` (``spec/tool_calling``). Vercel's
AI SDK has parts ``tool-call`` and ``tool-result``; in messages of its user interface,
one part ``tool-NAME`` is a call with its result. Google's ``generateContent`` has parts
``functionCall`` and ``functionResponse``, which its Python SDK writes with underscores.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from agentgym.core.files import whole_text
from agentgym.core.tools import is_recordable, parse_arguments, result_text

_ROLES = {
    "user": "user",
    "human": "user",
    "assistant": "assistant",
    "ai": "assistant",
    "model": "assistant",
    "tool": "tool",
    "function": "tool",
    "system": "system",
    "developer": "system",
}
UNREADABLE = (
    ValueError,
    TypeError,
    AttributeError,
    LookupError,
    RecursionError,
)
"""Exceptions raised for a value of an unexpected form."""

_WRAPPED = ("message", "message_content", "tool_call")
_TEXTS = ("text", "input_text", "output_text")
_CALLS = ("tool_use", "tool_call", "tool-call")
_INSIDE_CALLS = ("toolUse", "functionCall", "function_call")
_INSIDE_RESULTS = ("toolResult", "functionResponse", "function_response")
"""Keys of Bedrock's and Google's parts."""
_WRAPPED_RESULTS = ("result", "output", "error")
_IDS = ("id", "toolUseId", "toolCallId")
_SILENT = (
    "step-start",
    "reasoning",
    "thinking",
    "redacted_thinking",
    "reasoning_content",
)


@dataclass(frozen=True)
class LoggedCall:
    """A tool call in a log.

    Attributes:
        id: Id of the call; empty if the log does not have it.
        arguments: Arguments of the call; None if they are not a JSON object.
    """

    id: str
    name: str
    arguments: dict[str, Any] | None

    @property
    def key(self) -> str:
        """The call's name and arguments as JSON text, to compare calls."""
        return json.dumps([self.name, self.arguments], sort_keys=True)


@dataclass(frozen=True)
class Result:
    """A tool's answer in a log.

    Attributes:
        id: Id of the call that it answers; empty if the log does not have it.
        failed: Whether the log marks it as an error.
    """

    id: str
    text: str
    failed: bool


@dataclass(frozen=True)
class LoggedMessage:
    """One message of a logged conversation.

    Attributes:
        role: ``user``, ``assistant``, ``tool`` or ``system``.
        unknown: Types of further parts, such as images, which were not read.
    """

    role: str
    text: str
    calls: tuple[LoggedCall, ...] = ()
    results: tuple[Result, ...] = ()
    unknown: tuple[str, ...] = ()


def read_messages(value: Any) -> list[LoggedMessage]:
    """Parse a list of messages."""
    value = from_json(value)
    if isinstance(value, dict):
        value = [value]
    if not isinstance(value, list):
        raise ValueError(f"{shown(value)} is not a list of messages")
    if value and isinstance(value[0], list) and not _is_pair(value[0]):
        value = value[0]  # LangChain: a batch with one prompt
    return [read_message(each) for each in value]


def read_message(value: Any) -> LoggedMessage:
    """Parse one message in any of the known formats; a text is one of the user."""
    if isinstance(value, str):
        return LoggedMessage("user", whole_text(value))
    if _is_pair(value):
        value = {"role": value[0], "content": value[1]}
    if not isinstance(value, dict):
        raise ValueError(f"{shown(value)} is not a message")
    fields, kind = _fields(value)
    role = _ROLES.get(str(fields.get("role") or kind).lower(), "")
    if not role:
        raise ValueError(f"a message has the role {shown(fields.get('role') or kind)}")
    items = [item for part in _parts(fields) for item in _items(part)]
    text = whole_text("".join(item for item in items if isinstance(item, str)))
    calls = [*_listed_calls(fields), *(i for i in items if isinstance(i, LoggedCall))]
    results = [item for item in items if isinstance(item, Result)]
    unknown = tuple(_type(item) for item in items if isinstance(item, dict))
    if role == "tool" and not results:
        identity = fields.get("tool_call_id") or ""
        results = [Result(str(identity), text, fields.get("status") == "error")]
    if results and role == "user" and not text:
        role = "tool"  # Anthropic and Bedrock send tool results as the user
    return LoggedMessage(role, text, tuple(calls), tuple(results), unknown)


def read_arguments(value: Any) -> dict[str, Any] | None:
    """Return a call's arguments, given as an object or as its JSON text."""
    if value is None:
        return {}
    if isinstance(value, str):
        return parse_arguments(value)
    return value if isinstance(value, dict) and is_recordable(value) else None


def read_result(value: Any) -> str:
    """Return a tool's answer as text, as the model got it."""
    if isinstance(value, list) and value and all(map(_is_text, value)):
        items = (item for part in value for item in _items(part))
        value = "".join(item for item in items if isinstance(item, str))
    return whole_text(result_text("" if value is None else value))


def from_json(value: Any) -> Any:
    """Parse a text as JSON; return a value unchanged if it is not JSON text."""
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def shown(value: Any) -> str:
    """Return the ``repr`` of a value, cut to 60 characters, for an error message."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}…"


def _is_pair(value: Any) -> bool:
    if not isinstance(value, list) or len(value) != 2:
        return False
    return isinstance(value[0], str) and value[0].lower() in _ROLES


def _fields(value: dict[str, Any]) -> tuple[dict[str, Any], str]:
    """Return a message's fields, and its type as in the log; "" without a type."""
    value = _bare(value)
    kwargs, data = value.get("kwargs"), value.get("data")
    if isinstance(kwargs, dict) and isinstance(value.get("id"), list) and value["id"]:
        kind = str(value["id"][-1])
        return kwargs, kind.removesuffix("Chunk").removesuffix("Message")
    if isinstance(data, dict) and isinstance(value.get("type"), str):
        return data, value["type"]
    kind = str(value.get("type") or "")
    return value, kind.removesuffix("Chunk").removesuffix("Message")


def _bare(value: Any) -> dict[str, Any]:
    """Return the object inside of wrappers such as ``{"message": {…}}``."""
    while isinstance(value, dict) and "role" not in value:
        inner = next((value[k] for k in _WRAPPED if isinstance(value.get(k), dict)), 0)
        if not isinstance(inner, dict):
            break
        value = inner
    if not isinstance(value, dict):
        raise ValueError(f"{shown(value)} is not an object")
    return value


def _parts(fields: dict[str, Any]) -> Iterator[Any]:
    has_both = isinstance(fields.get("parts"), list)  # Vercel repeats the text
    for key in ("parts",) if has_both else ("content", "contents", "parts"):
        value = fields.get(key)
        if isinstance(value, list):
            yield from (
                _bare(part) if isinstance(part, dict) else part for part in value
            )
        elif value is not None:
            yield value if isinstance(value, str) else result_text(value)


def _items(part: Any) -> Iterator[str | LoggedCall | Result | dict[str, Any]]:
    """Yield the text, call or result in a part of a message; an unknown part itself."""
    if isinstance(part, str):
        yield part
    if not isinstance(part, dict):
        return
    kind = part.get("type")
    if _is_text(part):
        text = part.get("text", part.get("content"))
        if isinstance(text, str) and part.get("thought") is not True:
            yield text
    elif kind == "tool_call_response":
        said = part.get("response", part.get("result"))
        yield Result(str(part.get("id") or "").strip(), read_result(said), False)
    elif kind == "tool_result":
        identity = str(part.get("tool_use_id") or "")
        failed = part.get("is_error") is True
        yield Result(identity, read_result(part.get("content")), failed)
    elif _is_of_vercel(part):
        if kind != "tool-result":
            yield _call(part)
        if part.keys() & {"output", "result", "errorText"}:
            yield _result_of_vercel(part)
    elif kind in _CALLS:
        yield _call(part)
    elif (call := _inside(part, _INSIDE_CALLS)) is not None:
        yield _call(call)
    elif (result := _inside(part, _INSIDE_RESULTS)) is not None:
        yield _inner_result(result)
    elif kind not in _SILENT:
        yield part


def _is_text(part: Any) -> bool:
    if isinstance(part, dict):
        return part.get("type", "text") in _TEXTS and ("text" in part or "type" in part)
    return isinstance(part, str)


def _inside(part: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any] | None:
    return next((part[key] for key in keys if isinstance(part.get(key), dict)), None)


def _type(part: dict[str, Any]) -> str:
    """Return the type of a part; its keys if it has none."""
    return str(part.get("type") or ", ".join(map(str, part)))[:60]


def _is_of_vercel(part: dict[str, Any]) -> bool:
    """Return whether a part is a call, a result or both, of Vercel's AI SDK."""
    kind = str(part.get("type"))
    return "toolCallId" in part and (kind.startswith("tool-") or kind == "dynamic-tool")


def _listed_calls(fields: dict[str, Any]) -> Iterator[LoggedCall]:
    more = fields.get("additional_kwargs")
    more = more if isinstance(more, dict) else {}
    for each in fields.get("tool_calls") or more.get("tool_calls") or []:
        yield _call(_bare(each))
    alone = fields.get("function_call") or more.get("function_call")
    if isinstance(alone, dict):
        yield _call(alone)


def _call(value: dict[str, Any]) -> LoggedCall:
    inner = value.get("function")
    inner = inner if isinstance(inner, dict) else value
    name = inner.get("name") or inner.get("toolName")
    if not name and _is_of_vercel(value):
        name = str(value["type"]).removeprefix("tool-")
    if not isinstance(name, str) or not name:
        raise ValueError(f"a tool call names no tool: {shown(value)}")
    given = next((inner[k] for k in ("arguments", "args", "input") if k in inner), None)
    identity = next((value[k] for k in _IDS if value.get(k)), "")
    return LoggedCall(str(identity), name, read_arguments(given))


def _inner_result(value: dict[str, Any]) -> Result:
    """Return the result in Bedrock's or Google's object for it."""
    said = value.get("content", value.get("response"))
    if isinstance(said, list) and len(said) == 1 and isinstance(said[0], dict):
        said = said[0].get("json", said)
    failed = value.get("status") == "error"
    if isinstance(said, dict) and len(said) == 1:  # as Google's SDKs wrap it
        failed = failed or "error" in said
        said = next((said[k] for k in _WRAPPED_RESULTS if k in said), said)
    identity = next((value[k] for k in _IDS if value.get(k)), "")
    return Result(str(identity), read_result(said), failed)


def _result_of_vercel(part: dict[str, Any]) -> Result:
    said = part.get("output", part.get("result", part.get("errorText")))
    failed = part.get("isError") is True or "errorText" in part
    if isinstance(said, dict) and said.keys() == {"type", "value"}:
        failed = failed or str(said["type"]).startswith("error")
        said = said["value"]
    return Result(str(part["toolCallId"]), read_result(said), failed)
