"""Read spans and log records of OpenTelemetry, in OTLP's JSON or as SDKs print them.

OTLP's JSON (opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding) has attributes as
lists of ``{"key", "value": {"stringValue": …}}``; SDKs and Phoenix print plain objects.
The attributes follow one of these conventions:

- GenAI: messages in ``gen_ai.input.messages`` and ``gen_ai.output.messages``, as
  objects or JSON text, on spans or on the event
  ``gen_ai.client.inference.operation.details``.
  Tool calls in ``gen_ai.tool.name``, ``gen_ai.tool.call.arguments`` and
  ``gen_ai.tool.call.result``.
- GenAI up to 1.36: one event per message, such as ``gen_ai.user.message``,
  ``gen_ai.tool.message`` or ``gen_ai.choice``, as a log record or on the span.
- OpenInference: messages in flat keys such as ``llm.input_messages.0.message.role``;
  tool calls as spans of the kind ``TOOL`` with ``input.value`` and ``output.value``.
- OpenLLMetry: messages in flat keys such as ``gen_ai.prompt.0.role`` and
  ``gen_ai.completion.0.content``.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from agentgym.core.tools import result_text
from agentgym.plugins.logs.message import (
    UNREADABLE,
    LoggedCall,
    LoggedMessage,
    Result,
    from_json,
    read_arguments,
    read_message,
    read_messages,
    read_result,
)
from agentgym.plugins.logs.trace import ToolRun, Trace

Attributes = dict[str, Any]

_GROUPS = {
    "resourcespans": "spans",
    "scopespans": "spans",
    "instrumentationlibraryspans": "spans",
    "batches": "spans",
    "resourcelogs": "logs",
    "scopelogs": "logs",
    "spans": "span",
    "logrecords": "record",
}
_FLAT = (
    ("llm.input_messages", "llm.output_messages"),
    ("gen_ai.prompt", "gen_ai.completion"),
)
_INPUT, _OUTPUT = "gen_ai.input.messages", "gen_ai.output.messages"
_EVENTS = ("gen_ai.system.", "gen_ai.user.", "gen_ai.assistant.", "gen_ai.tool.")
_CHOICE = "gen_ai.choice"
_FAILED = (2, "2", "STATUS_CODE_ERROR", "ERROR")


@dataclass
class _Span:
    """A span with the data of its events and log records."""

    name: str = ""
    start: str = ""
    failed: bool = False
    attributes: dict[str, Any] = field(default_factory=dict)  # as nested objects
    events: list[tuple[str, str, Attributes]] = field(default_factory=list)

    def add_span(self, value: dict[str, Any]) -> None:
        """Add a span of an export."""
        fields = _plain_keys(value)
        self.name = str(value.get("name") or "")
        self.start = str(fields.get("starttimeunixnano", fields.get("starttime")) or "")
        status = value.get("status")
        status = status if isinstance(status, dict) else {"code": status}
        codes = status.get("code"), status.get("status_code"), fields.get("statuscode")
        self.failed = any(code in _FAILED for code in codes)
        _nest(_attributes(value.get("attributes")), self.attributes)
        events = value.get("events")
        for event in events if isinstance(events, list) else []:
            if isinstance(event, dict):
                found = _attributes(event.get("attributes"))
                self._add_event(str(event.get("name") or ""), _time(event), found)

    def add_record(self, value: dict[str, Any]) -> None:
        """Add a log record of an export."""
        self.start = self.start or _time(value)
        attributes = _attributes(value.get("attributes"))
        name = _plain_keys(value).get("eventname") or attributes.get("event.name") or ""
        body = value.get("body")
        body = from_json(_any(body) if isinstance(body, dict) else body)
        if isinstance(body, dict):
            attributes |= body
        self._add_event(str(name), _time(value), attributes)

    def _add_event(self, name: str, time: str, attributes: Attributes) -> None:
        if name == _CHOICE or name.startswith(_EVENTS):
            self.events.append((time, name, attributes))
        elif attributes.keys() & {_INPUT, _OUTPUT}:
            _nest(attributes, self.attributes)

    def get(self, name: str) -> Any:
        """Return the value of an attribute such as ``gen_ai.tool.name``, or None."""
        found: Any = self.attributes
        for part in name.split("."):
            found = found.get(part) if isinstance(found, dict) else None
        return found


class _Part(NamedTuple):
    """A span or a log record in an export."""

    value: dict[str, Any]
    is_record: bool
    where: str


def is_export(value: dict[str, Any]) -> bool:
    """Return whether it is a span, a log record, or ``{"resourceSpans": […]}``."""
    if any(_plain(key) in _GROUPS for key in value):
        return True
    return bool(_identity(value, "traceid") and _identity(value, "spanid"))


def spans_in(value: dict[str, Any], where: str) -> Iterator[tuple[str, _Part]]:
    """Yield the spans and log records of an export, each with the id of its trace."""
    groups = [(_GROUPS[_plain(k)], v) for k, v in value.items() if _plain(k) in _GROUPS]
    if not groups:
        is_record = "body" in value or "eventname" in map(_plain, value)
        yield _identity(value, "traceid") or where, _Part(value, is_record, where)
    for kind, inner in groups:
        for number, each in enumerate(inner if isinstance(inner, list) else []):
            place = f"{where}/{number}"
            if isinstance(each, dict) and kind in ("span", "record"):
                part = _Part(each, kind == "record", place)
                yield _identity(each, "traceid") or place, part
            elif isinstance(each, dict):
                yield from spans_in(each, place)


def trace_of_spans(parts: list[_Part], problems: list[str]) -> Trace:
    """Convert the spans and log records of one trace to a `Trace`."""
    spans: dict[str, _Span] = {}
    for part in parts:
        key = _identity(part.value, "spanid") or part.where
        span = spans.setdefault(key, _Span())
        try:
            add = span.add_record if part.is_record else span.add_span
            add(part.value)
        except UNREADABLE as error:
            kind = "record" if part.is_record else "span"
            problems.append(f"{part.where}: a {kind} of OpenTelemetry: {error}")
    trace = Trace()
    for span in sorted(spans.values(), key=lambda span: (len(span.start), span.start)):
        try:
            if run := _tool(span):
                trace.runs.append(run)
            elif messages := [*_messages(span)]:
                trace.conversations.append(messages)
            elif not trace.asked:
                value = span.get("input.value")
                plain = isinstance(value, str) and isinstance(from_json(value), str)
                trace.asked = str(value) if plain else ""
        except UNREADABLE as error:
            problems.append(f"a span of OpenTelemetry, {span.name!r}: {error}")
    return trace


def _tool(span: _Span) -> ToolRun | None:
    kind = str(span.get("openinference.span.kind") or "").upper()
    is_tool = kind == "TOOL" or span.get("gen_ai.operation.name") == "execute_tool"
    if not is_tool and span.get("gen_ai.tool.call.arguments") is None:
        return None
    name = span.get("gen_ai.tool.name") or span.get("tool.name") or span.name
    name = str(name).removeprefix("execute_tool ")
    identity = str(span.get("gen_ai.tool.call.id") or span.get("tool.id") or "")
    given = (
        read_arguments(found)
        for key in ("gen_ai.tool.call.arguments", "input.value", "tool.parameters")
        if (found := span.get(key)) is not None
    )
    arguments = next((each for each in given if each is not None), None)
    said = span.get("gen_ai.tool.call.result")
    said = span.get("output.value") if said is None else said
    answer = None
    if said is not None or span.failed:
        answer = Result(identity, read_result(said), span.failed)
    return ToolRun(LoggedCall(identity, name, arguments), answer)


def _messages(span: _Span) -> Iterator[LoggedMessage]:
    """Yield the messages of a model call: its input, and the first of its outputs."""
    given, said = span.get(_INPUT), span.get(_OUTPUT)
    if given is not None or said is not None:
        yield from read_messages(given or [])
        yield from read_messages(said or [])[:1]
        return
    for names in _FLAT:
        found = [_listed(from_json(span.get(name))) for name in names]
        inputs, outputs = (each if isinstance(each, list) else [] for each in found)
        if inputs or outputs:
            yield from map(read_message, inputs)
            yield from map(read_message, outputs[:1])
            return
    chosen = False
    for _, name, event in sorted(span.events, key=lambda event: event[0]):
        if name == _CHOICE and chosen:
            continue
        chosen = chosen or name == _CHOICE
        yield read_message(_of_event(name, event))


def _of_event(name: str, event: Attributes) -> dict[str, Any]:
    """Return the message in an event of the GenAI conventions up to 1.36."""
    if name == _CHOICE:
        message = from_json(event.get("message"))
        message = message if isinstance(message, dict) else {"content": message}
        message = {**event, **message, "role": "assistant"}
    else:
        role = name.removeprefix("gen_ai.").removesuffix(".message")
        message = {**event, "role": role, "tool_call_id": event.get("id")}
    for key in ("content", "tool_calls"):  # SDKs whose attributes are only texts
        inner = from_json(message.get(key))
        if isinstance(inner, list):
            message[key] = inner
    return message


def _nest(attributes: Attributes, tree: dict[str, Any]) -> None:
    """Add attributes with dotted names to nested objects."""
    for name, value in attributes.items():
        *above, last = name.split(".")
        inner = tree
        for part in above:
            step = inner.get(part)
            inner[part] = step if isinstance(step, dict) else {}
            inner = inner[part]
        inner[last] = value


def _listed(value: Any) -> Any:
    """Return a value whose objects with only numbers as keys are lists, at any depth.

    An object's dotted keys become nested objects.
    """
    if isinstance(value, list):
        return [_listed(each) for each in value]
    if not isinstance(value, dict):
        return value
    tree: dict[str, Any] = {}
    _nest(value, tree)
    if tree and all(key.isdecimal() for key in tree):
        return [_listed(tree[key]) for key in sorted(tree, key=int)]
    return {key: _listed(inner) for key, inner in tree.items()}


def _attributes(value: Any) -> Attributes:
    """Return attributes by name, from OTLP's list or from a plain object."""
    if isinstance(value, list):
        pairs = [each for each in value if isinstance(each, dict)]
        return {str(each.get("key")): _any(each.get("value")) for each in pairs}
    return dict(value) if isinstance(value, dict) else {}


def _any(value: Any) -> Any:
    """Return the Python value of OTLP's ``AnyValue``, e.g. ``{"intValue": "1"}``."""
    if not isinstance(value, Mapping) or len(value) != 1:
        return None if value == {} else value
    [(key, inner)] = value.items()
    match _plain(key):
        case "stringvalue" | "boolvalue" | "doublevalue" | "bytesvalue":
            return inner
        case "intvalue":
            return int(inner) if str(inner).lstrip("-").isdecimal() else inner
        case "arrayvalue":
            return [_any(each) for each in inner.get("values", [])]
        case "kvlistvalue":
            return _attributes(inner.get("values", []))
    return value


def _identity(value: dict[str, Any], name: str) -> str | None:
    context = value.get("context")
    within = _plain_keys(context).get(name) if isinstance(context, dict) else None
    found = _plain_keys(value).get(name) or within
    return result_text(found) if found else None


def _time(value: dict[str, Any]) -> str:
    fields = _plain_keys(value)
    return str(fields.get("timeunixnano", fields.get("timestamp")) or "")


def _plain_keys(value: dict[str, Any]) -> dict[str, Any]:
    """Return an object whose keys are in small letters and without ``_``."""
    return {_plain(key): inner for key, inner in value.items()}


def _plain(key: str) -> str:
    return key.replace("_", "").lower()
