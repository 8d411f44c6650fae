"""ToolFormat: read tool calls and reasoning in a response's text.

A *format* is how a family of models writes tool calls and reasoning; a *mark* is a
fixed text around them, e.g. ``<tool_call>``. Formats do not depend on token ids.
"""

import json
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, NamedTuple

from agentgym.core.components import (
    MALFORMED,
    OUTPUT,
    PARAMETERS,
    REASONING,
    TOOL,
    Span,
)
from agentgym.core.files import whole_text
from agentgym.core.json_schema import referred


@dataclass(frozen=True)
class WrittenCall:
    """A tool call as the model wrote it in a response's text.

    Attributes:
        name: Name of the tool; None if the call is malformed.
        values: Start and end offset of the arguments in the response's text.
        mark: Offset after the mark that opens the call, e.g. ``<tool_call>``.
    """

    start: int
    end: int
    name: str | None = None
    arguments: str | None = None
    values: tuple[int, int] = (0, 0)
    mark: int = 0

    @property
    def malformed(self) -> bool:
        """Whether the call cannot be read as a name and arguments."""
        return self.name is None or self.arguments is None

    def spans(self) -> Iterator[Span]:
        """Yield the ranges of this call's text, e.g. name and arguments, in order."""
        if self.malformed:
            yield Span(self.start, max(self.start, self.mark), TOOL)
            yield Span(max(self.start, self.mark), self.end, MALFORMED)
            return
        first, last = self.values
        yield Span(self.start, first, TOOL)
        yield Span(first, last, PARAMETERS)
        yield Span(last, self.end, TOOL)


class CallText(NamedTuple):
    """The fixed text around a call's arguments, for a grammar that restricts sampling.

    Attributes:
        opening: The mark that opens calls; empty if the format has no such mark.
        notation: How arguments are written: ``json`` (a JSON object), ``python``
            (keyword arguments) or ``tags`` (one tag per argument, then the function's
            closing tag).
        around: The texts before the first and after the last call, e.g. ``[`` and
            ``]``, for formats with several calls between one pair of marks.
        separator: The text between two such calls; empty if each call has its own
            marks.
    """

    opening: str
    before: tuple[str, ...]
    after: str
    closing: str
    notation: Literal["json", "python", "tags"] = "json"
    around: tuple[str, str] = ("", "")
    separator: str = ""


@dataclass(frozen=True)
class Reading:
    """A parsed response.

    Attributes:
        spans: The parts of the response, in order, without gaps or overlaps.
        content: The text for the user, without calls, reasoning and marks.
    """

    text: str
    spans: tuple[Span, ...]
    calls: tuple[WrittenCall, ...]
    content: str
    reasoning: str

    @property
    def written(self) -> str:
        """The text of all calls, malformed ones included, joined."""
        return "".join(self.text[call.start : call.end] for call in self.calls)


class ToolFormat(ABC):
    """Base class of tool-call formats. Instances hold no state.

    Most formats write calls into one text and implement only :meth:`find_calls`. A
    format with several messages per answer also overrides :meth:`read`.

    Attributes:
        name: The name that ``tool_format`` accepts.
        vllm_parser: Name of vLLM's parser for this format.
        openers: Texts that open a call. Streamed text ends before such a text.
        reasoning_marks: Pairs of texts that open and close reasoning.
        end_marks: Texts that may end an answer; they are removed from its content.
        example: An example call, for error messages and documentation.
    """

    name: ClassVar[str]
    vllm_parser: ClassVar[str]
    openers: ClassVar[tuple[str, ...]]
    reasoning_marks: ClassVar[tuple[tuple[str, str], ...]] = (("<think>", "</think>"),)
    end_marks: ClassVar[tuple[str, ...]] = ()
    example: ClassVar[str]

    @abstractmethod
    def find_calls(
        self, text: str, start: int, tools: Sequence[Mapping[str, Any]]
    ) -> list[WrittenCall]:
        """Return the calls in a response from offset ``start`` on, in order.

        ``start`` is where the response's reasoning ends. Formats that write values
        without types convert them by the schemas of ``tools``, in OpenAI's format.
        """

    def call_text(self, name: str, written: str) -> CallText | None:
        """Return the text around the arguments of a call of the tool ``name``.

        ``written`` is an example call from the model's chat template, whose spelling is
        used. None, the default, if a grammar cannot restrict calls of this format.
        """
        return None

    def read(
        self,
        text: str,
        *,
        prefix: str = "",
        tools: Sequence[Mapping[str, Any]] = (),
        end: str = "",
    ) -> Reading:
        """Parse a response into calls, reasoning and content.

        ``prefix`` has the last characters of the prompt, which may open the reasoning;
        ``tools`` are the offered tools in OpenAI's format. If the response ends with an
        end token, ``end`` is its text.
        """
        body = text.removesuffix(end) if end else text
        opened, closed = self._reasoning(body, prefix, tools)
        calls = self.find_calls(body, closed, tools)
        spans = [Span(0, closed, REASONING)]
        for call in calls:
            spans += [Span(spans[-1].end, call.start, OUTPUT), *call.spans()]
        spans += [
            Span(spans[-1].end, len(body), OUTPUT),
            Span(len(body), len(text), TOOL),
        ]
        content = "".join(
            body[s.start : s.end] for s in spans if s.components == OUTPUT
        )
        for mark in self.end_marks:
            content = content.replace(mark, "")
        if closed:  # templates put blank lines after reasoning
            content = content.lstrip("\n")
        return Reading(
            text,
            tuple(span for span in spans if span.start < span.end),
            tuple(calls),
            content,
            self._without_marks(body[opened:closed]),
        )

    def thinks(self, prefix: str) -> bool:
        """Return whether a prompt that ends in ``prefix`` opens reasoning.

        The model's response then starts inside the reasoning.
        """
        return any(
            prefix.rfind(opening) > prefix.rfind(closing)
            for opening, closing in self.reasoning_marks
        )

    def safe_content(self, text: str, *, prefix: str = "") -> str:
        """Return the part of an unfinished answer that streaming can already show.

        The text after this part is a call, or may become the mark of a call or of
        reasoning. Empty while the answer's reasoning is not closed. ``prefix`` is the
        end of the prompt, which may open the reasoning.
        """
        _, closed = self._reasoning(text, prefix, ())
        if self._unclosed(text, prefix):
            return ""
        shown = text[closed:].lstrip("\n") if closed else text
        for opener in self.openers:
            shown = shown[: shown.find(opener)] if opener in shown else shown
        marks = self.openers + self.end_marks
        marks += tuple(opening for opening, _ in self.reasoning_marks)
        return shown[: len(shown) - max(_begun(shown, mark) for mark in marks)]

    def _unclosed(self, text: str, prefix: str) -> bool:
        opened = self.thinks(prefix) or any(
            text.lstrip().startswith(mark) for mark, _ in self.reasoning_marks
        )
        return opened and not any(close in text for _, close in self.reasoning_marks)

    def _reasoning(
        self, text: str, prefix: str, tools: Sequence[Mapping[str, Any]]
    ) -> tuple[int, int]:
        """Return start and end offset of the reasoning at the start of a response."""
        # The opening mark may be in the prompt, or missing. A closing mark inside a
        # call's arguments does not end the reasoning.
        start = len(text) - len(text.lstrip())
        for opening, closing in self.reasoning_marks:
            if text.startswith(opening, start):
                found = text.find(closing, start)
                return start, len(text) if found < 0 else found + len(closing)
        if not any(closing in text for _, closing in self.reasoning_marks):
            return 0, len(text) if self.thinks(prefix) else 0
        calls = [] if self.thinks(prefix) else self.find_calls(text, 0, tools)
        inside = [call for call in calls if not call.malformed]
        for _, closing in self.reasoning_marks:
            at = text.find(closing)
            while at >= 0 and any(call.start < at < call.end for call in inside):
                at = text.find(closing, at + 1)
            if at >= 0:
                return 0, at + len(closing)
        return 0, len(text) if self.thinks(prefix) else 0

    def _without_marks(self, reasoning: str) -> str:
        for opening, closing in self.reasoning_marks:
            reasoning = reasoning.replace(opening, "").replace(closing, "")
        return reasoning.strip()


def call_of(
    span: tuple[int, int],
    name: object,
    arguments: object,
    values: tuple[int, int],
    mark: int,
) -> WrittenCall:
    """Build a call; mark it as malformed if its name or its arguments are not valid.

    ``span`` and ``values`` are the offsets of the call and of its arguments, ``mark``
    the offset after the opening mark.
    """
    broken = WrittenCall(*span, mark=mark)
    written = arguments if isinstance(arguments, str) else ""
    if not written:
        if not isinstance(arguments, dict):
            return broken
        written = json.dumps(arguments, ensure_ascii=False)
    elif not _is_object(written):
        return broken
    if not isinstance(name, str) or not name or name != name.strip():
        return broken
    if any(whole_text(part) != part for part in (name, written)):
        return broken  # half a surrogate pair cannot be sent or stored
    return WrittenCall(*span, name, written, values, mark)


def json_call(
    text: str,
    span: tuple[int, int],
    name: object,
    arguments: tuple[Any, int, int],
    mark: int,
) -> WrittenCall:
    """Build a call from a :class:`JsonObject`, with arguments as object or text."""
    given, first, last = arguments
    written = given if isinstance(given, str) else text[first:last]
    return call_of(span, name, written, (first, last), mark)


def malformed_call(text: str, start: int, mark: int, closing: str) -> WrittenCall:
    """Return a malformed call that begins at ``start``.

    It ends after its closing mark, or before the next opening mark if this comes first.
    """
    ends = [text.find(closing, mark), text.find(text[start:mark], mark)]
    closed, reopened = (len(text) if at < 0 else at for at in ends)
    end = reopened if reopened < closed else min(closed + len(closing), len(text))
    return WrittenCall(start, end, mark=mark)


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


class JsonObject(NamedTuple):
    """A JSON object in a text. ``fields`` has the value and its offsets, by key."""

    fields: dict[str, tuple[Any, int, int]]
    end: int


_DECODER = json.JSONDecoder()
_OPEN, _COLON, _COMMA, _CLOSE = (
    re.compile(rf"\s*{mark}\s*") for mark in (r"\{", ":", ",", r"\}")
)
_END = re.compile(r"\s*\}")


def read_object(text: str, start: int) -> JsonObject | None:
    """Read the JSON object at offset ``start``, with the offsets of its values."""
    # If a key occurs twice, the last value counts, as for json.loads.
    fields: dict[str, tuple[Any, int, int]] = {}
    try:
        at = _after(_OPEN, text, start)
        if end := _END.match(text, at):
            return JsonObject(fields, end.end())
        while True:
            key, at = _DECODER.raw_decode(text, at)
            first = _after(_COLON, text, at)
            value, at = _DECODER.raw_decode(text, first)
            if not isinstance(key, str):
                return None
            fields[key] = (value, first, at)
            if not (comma := _COMMA.match(text, at)):
                break
            at = comma.end()
        return JsonObject(fields, _after(_END, text, at))
    except (ValueError, RecursionError):
        return None


def _after(mark: re.Pattern[str], text: str, at: int) -> int:
    found = mark.match(text, at)
    if found is None:
        raise ValueError(f"{mark.pattern} is missing")
    return found.end()


def _begun(text: str, mark: str) -> int:
    """Return how many last characters of ``text`` may be the start of ``mark``."""
    for count in range(min(len(mark) - 1, len(text)), 0, -1):
        if text.endswith(mark[:count]):
            return count
    return 0


def parameter_types(
    tools: Sequence[Mapping[str, Any]], name: str
) -> Mapping[str, frozenset[str]]:
    """Return the JSON types of a tool's typed parameters; {} for an unknown tool."""
    for tool in tools:
        function = tool.get("function", tool)
        if isinstance(function, Mapping) and function.get("name") == name:
            schema = function.get("parameters")
            found = schema.get("properties") if isinstance(schema, Mapping) else None
            if isinstance(found, Mapping):
                typed = {key: _types(value, schema, 0) for key, value in found.items()}
                return {key: types for key, types in typed.items() if types}
    return {}


def _types(schema: Any, root: Any, depth: int) -> frozenset[str]:
    if not isinstance(schema, Mapping) or depth > 8:
        return frozenset()
    if isinstance(reference := schema.get("$ref"), str):
        return _types(referred(reference, root), root, depth + 1)
    named = schema.get("type")
    types = {named} if isinstance(named, str) else set(named or ())
    for key in ("anyOf", "oneOf", "allOf"):
        for branch in schema.get(key) or ():
            types |= _types(branch, root, depth + 1)
    fixed = [schema["const"]] if "const" in schema else schema.get("enum") or ()
    for value in fixed:
        types.add(_TYPE_NAMES.get(type(value), "object"))
    return frozenset(types)


_TYPE_NAMES = {
    str: "string", bool: "boolean", int: "integer", float: "number",
    type(None): "null", list: "array", dict: "object",
}  # fmt: skip


def typed_value(raw: str, types: frozenset[str] | None) -> Any:
    """Convert a parameter's text to one of its JSON types, if that is possible."""
    if not types or types == {"string"}:
        return raw
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        value = _PYTHON.get(raw.strip(), raw)
    kind = _TYPE_NAMES.get(type(value), "object")
    if kind in types or (kind == "integer" and "number" in types):
        return value
    return raw


_PYTHON: Mapping[str, Any] = {"True": True, "False": False, "None": None}
