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
from typing import Any

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
_BRANCHES = ("llm", "gen_ai", "openinference", "tool", "input", "output", "message")
_FLAT = (
    ("llm.input_messages", "llm.output_messages"),
    ("gen_ai.prompt", "gen_ai.completion"),
)
_EVENTS = ("gen_ai.system.", "gen_ai.user.", "gen_ai.assistant.", "gen_ai.tool.")
_CHOICE = "gen_ai.choice"
_FAILED = (2, "2", "STATUS_CODE_ERROR", "ERROR")


@dataclass
class _Span:
    """A span with the data of its events and log records."""

    name: str = ""
    start: str = ""
    failed: bool = False
    attributes: Attributes = field(default_factory=dict)
    events: list[tuple[str, str, Attributes]] = field(default_factory=list)


def is_export(value: dict[str, Any]) -> bool:
    """Return whether it is a span, a log record, or ``{"resourceSpans": […]}``."""
    if any(_plain(key) in _GROUPS for key in value):
        return True
    return _identity(value, "traceid") is not None and (
        _identity(value, "spanid") is not None
    )


class Spans:
    """A collection of OpenTelemetry's spans and log records, grouped into traces."""

    def __init__(self, problems: list[str]) -> None:
        self._problems = problems
        self._by_trace: dict[str, dict[str, _Span]] = {}

    def add(self, value: dict[str, Any], where: str) -> None:
        """Add a span, a log record, or a group of these."""
        kinds = [(_GROUPS.get(_plain(key)), inner) for key, inner in value.items()]
        groups = [(kind, inner) for kind, inner in kinds if kind]
        if not groups:
            record = "body" in value or "eventname" in map(_plain, value)
            self._add_one("record" if record else "span", value, where)
            return
        for kind, inner in groups:
            for number, each in enumerate(inner if isinstance(inner, list) else []):
                if not isinstance(each, dict):
                    continue
                if kind in ("span", "record"):
                    self._add_one(kind, each, f"{where}/{number}")
                else:
                    self.add(each, f"{where}/{number}")

    def _add_one(self, kind: str, value: dict[str, Any], where: str) -> None:
        try:
            if kind == "span":
                self._add_span(value, where)
            else:
                self._add_record(value, where)
        except UNREADABLE as error:
            self._problems.append(f"{where}: a {kind} of OpenTelemetry: {error}")

    def _span(self, value: dict[str, Any], where: str) -> _Span:
        trace = _identity(value, "traceid") or where
        identity = _identity(value, "spanid") or where
        return self._by_trace.setdefault(trace, {}).setdefault(identity, _Span())

    def _add_span(self, value: dict[str, Any], where: str) -> None:
        span = self._span(value, where)
        span.name = str(value.get("name") or "")
        span.start = str(_named(value, "starttimeunixnano", "starttime") or "")
        status = value.get("status")
        status = status if isinstance(status, dict) else {"code": status}
        codes = (
            status.get("code"),
            status.get("status_code"),
            _named(value, "statuscode"),
        )
        span.failed = any(code in _FAILED for code in codes)
        span.attributes |= _attributes(value.get("attributes"))
        events = value.get("events")
        for event in events if isinstance(events, list) else []:
            if isinstance(event, dict):
                found = _attributes(event.get("attributes"))
                time = str(_named(event, "timeunixnano", "timestamp") or "")
                self._add_event(span, str(event.get("name") or ""), time, found)

    def _add_record(self, value: dict[str, Any], where: str) -> None:
        span = self._span(value, where)
        time = str(_named(value, "timeunixnano", "timestamp") or "")
        span.start = span.start or time
        attributes = _attributes(value.get("attributes"))
        name = _named(value, "eventname") or attributes.get("event.name") or ""
        body = value.get("body")
        body = from_json(_any(body) if isinstance(body, dict) else body)
        if isinstance(body, dict):
            attributes |= body
        self._add_event(span, str(name), time, attributes)

    def _add_event(
        self, span: _Span, name: str, time: str, attributes: Attributes
    ) -> None:
        if name == _CHOICE or name.startswith(_EVENTS):
            span.events.append((time, name, attributes))
        elif "gen_ai.input.messages" in attributes or (
            "gen_ai.output.messages" in attributes
        ):
            span.attributes |= attributes

    def traces(self) -> list[Trace]:
        """Return the traces, in the order in which they were added."""
        return [
            _trace([*spans.values()], self._problems)
            for spans in self._by_trace.values()
        ]


def _trace(spans: list[_Span], problems: list[str]) -> Trace:
    trace = Trace()
    for span in sorted(spans, key=lambda span: (len(span.start), span.start)):
        try:
            if run := _tool(span):
                trace.runs.append(run)
            elif messages := [*_messages(span)]:
                trace.conversations.append(messages)
            elif not trace.asked:
                value = span.attributes.get("input.value")
                plain = isinstance(value, str) and isinstance(from_json(value), str)
                trace.asked = str(value) if plain else ""
        except UNREADABLE as error:
            problems.append(f"a span of OpenTelemetry, {span.name!r}: {error}")
    return trace


def _tool(span: _Span) -> ToolRun | None:
    found = span.attributes
    kind = str(found.get("openinference.span.kind") or "").upper()
    is_tool = kind == "TOOL" or found.get("gen_ai.operation.name") == "execute_tool"
    if not is_tool and "gen_ai.tool.call.arguments" not in found:
        return None
    name = found.get("gen_ai.tool.name") or found.get("tool.name") or span.name
    name = str(name).removeprefix("execute_tool ")
    identity = str(found.get("gen_ai.tool.call.id") or found.get("tool.id") or "")
    given = (
        read_arguments(found[key])
        for key in ("gen_ai.tool.call.arguments", "input.value", "tool.parameters")
        if key in found
    )
    arguments = next((each for each in given if each is not None), None)
    said = found.get("gen_ai.tool.call.result", found.get("output.value"))
    if said is None and not span.failed:
        return ToolRun(LoggedCall(identity, name, arguments), None)
    answer = Result(identity, read_result(said), span.failed)
    return ToolRun(LoggedCall(identity, name, arguments), answer)


def _messages(span: _Span) -> Iterator[LoggedMessage]:
    """Yield the messages of a model call: its input, and the first of its outputs."""
    found = span.attributes
    if "gen_ai.input.messages" in found or "gen_ai.output.messages" in found:
        yield from read_messages(found.get("gen_ai.input.messages") or [])
        yield from read_messages(found.get("gen_ai.output.messages") or [])[:1]
        return
    for given, said in _FLAT:
        inputs, outputs = _unflattened(found, given), _unflattened(found, said)
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


def _unflattened(found: Attributes, prefix: str) -> list[Any]:
    """Return the list in the attribute ``prefix`` or in flat keys ``prefix.0.…``."""
    start = f"{prefix}."
    parts = [
        (k.removeprefix(start), v) for k, v in found.items() if k.startswith(start)
    ]
    whole = from_json(found.get(prefix))
    if not parts:
        return [_tree(each.items()) for each in whole] if _is_list(whole) else []
    made = _tree(parts)
    return made if isinstance(made, list) else []


def _is_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, dict) for each in value)


def _tree(items: Any) -> Any:
    """Build nested objects from dotted names; one with only numbers becomes a list."""
    tree: dict[str, Any] = {}
    for name, value in items:
        if isinstance(value, dict):
            value = _tree(value.items())
        elif _is_list(value):
            value = [_tree(each.items()) for each in value]
        inner = tree
        *above, last = name.split(".")
        for part in above:
            step = inner.setdefault(part, {})
            inner = step if isinstance(step, dict) else {}
        inner[last] = value
    return _listed(tree)


def _listed(tree: Any) -> Any:
    if not isinstance(tree, dict):
        return tree
    if tree and all(key.isdecimal() for key in tree):
        return [_listed(tree[key]) for key in sorted(tree, key=int)]
    return {key: _listed(value) for key, value in tree.items()}


def _attributes(value: Any) -> Attributes:
    """Return attributes by name, from OTLP's list or from a plain object."""
    if isinstance(value, list):
        pairs = [each for each in value if isinstance(each, dict)]
        return {str(each.get("key")): _any(each.get("value")) for each in pairs}
    if not isinstance(value, dict):
        return {}
    found: Attributes = {}
    for key, inner in value.items():
        nested = key in _BRANCHES and isinstance(inner, dict)
        found |= dict(_leaves(key, inner)) if nested else {key: inner}
    return found


def _leaves(prefix: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _leaves(f"{prefix}.{key}", inner)
    else:
        yield prefix, value


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
            pairs = inner.get("values", [])
            return _attributes(pairs)
    return value


def _identity(value: dict[str, Any], name: str) -> str | None:
    context = value.get("context")
    within = _named(context, name) if isinstance(context, dict) else None
    found = _named(value, name) or within
    return result_text(found) if found else None


def _named(value: dict[str, Any], *names: str) -> Any:
    """Return the first value under one of ``names`` (without case and ``_``)."""
    return next((v for k, v in value.items() if _plain(k) in names), None)


def _plain(key: str) -> str:
    return key.replace("_", "").lower()
