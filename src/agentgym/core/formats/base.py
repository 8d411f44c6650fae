"""ToolFormat: read tool calls and reasoning in a response's text.

A *format* is the way in which a family of models writes tool calls and reasoning. It is
a grammar over text; it knows no model names and no token ids.
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


@dataclass(frozen=True)
class WrittenCall:
    """A tool call as the model wrote it in a response's text.

    Attributes:
        start: Offset of its first character.
        end: Offset after its last character.
        name: The tool; None if the call is malformed.
        arguments: A JSON object as text; None if the call is malformed.
        values: Offsets of the argument values, without syntax.
        mark: Offset after the mark that opens the call.
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
        """Yield the spans of this call."""
        if self.malformed:
            yield Span(self.start, max(self.start, self.mark), TOOL)
            yield Span(max(self.start, self.mark), self.end, MALFORMED)
            return
        first, last = self.values
        yield Span(self.start, first, TOOL)
        yield Span(first, last, PARAMETERS)
        yield Span(last, self.end, TOOL)


class CallText(NamedTuple):
    """The text around a call's arguments, for a grammar of calls.

    Attributes:
        opening: The mark that opens calls; empty without one.
        before: Texts and marks between that mark and the arguments.
        after: Texts and marks between the arguments and the closing mark.
        closing: The mark that closes calls; empty without one.
        notation: How arguments are written: a JSON object, Python's keyword arguments,
            or tags until the function's closing tag.
        around: The texts before and after calls that share their marks.
        separator: Text between calls that share their marks; empty if each has its own.
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
        text: The response, end mark included if it has one.
        spans: Cover the text without gaps or overlaps, in order.
        calls: Tool calls in order, malformed ones included.
        content: The text for the user: neither calls nor reasoning nor marks.
        reasoning: The text of the reasoning, without its marks.
    """

    text: str
    spans: tuple[Span, ...]
    calls: tuple[WrittenCall, ...]
    content: str
    reasoning: str

    @property
    def written(self) -> str:
        """The text of all calls, malformed ones included."""
        return "".join(self.text[call.start : call.end] for call in self.calls)


class ToolFormat(ABC):
    """One format of tool calls. Instances hold no state.

    A format whose answer is one text with marked calls in it implements only
    :meth:`find_calls`; a format whose answer is several messages with headers overrides
    :meth:`read`.

    Attributes:
        name: The name that ``--tool-format`` accepts.
        vllm_parser: vLLM's parser of this format, for serving with vLLM.
        openers: Texts that open a call. Streaming shows no text after one.
        reasoning_marks: Pairs of texts that open and close reasoning.
        end_marks: Texts that may end an answer without being part of its content.
        example: A call, for error messages and documentation.
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
        """Return the calls in ``text`` from offset ``start`` on, in order.

        Args:
            text: The response.
            start: Where its reasoning ends.
            tools: OpenAI-shaped tools of the request. Formats that write untyped values
                read them by these schemas.
        """

    def call_text(self, name: str, written: str) -> CallText | None:
        """Return the text around the arguments of a call of the tool ``name``.

        The default is None: no grammar of such calls can be written.

        Args:
            name: The tool.
            written: A call as the model's chat template writes it, for formats with
                several spellings.
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
        """Read a response.

        Args:
            text: The response, end token included if it has one.
            prefix: The end of its prompt, which may open the reasoning.
            tools: OpenAI-shaped tools that were offered.
            end: The text of the end token that ``text`` ends with; empty without one.
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
        """Return whether a prompt that ends in ``prefix`` has opened reasoning."""
        return any(
            prefix.rfind(opening) > prefix.rfind(closing)
            for opening, closing in self.reasoning_marks
        )

    def safe_content(self, text: str, *, prefix: str = "") -> str:
        """Return the start of an unfinished answer that is certainly content.

        The rest is reasoning, a call, or possibly the start of their marks.
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
        """Return where the reasoning at the beginning of a response starts and ends.

        Its opening mark may be in the prompt, or missing (some models only close it). A
        closing mark inside a call's arguments does not end it.
        """
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
    text: str,
    span: tuple[int, int],
    name: object,
    arguments: object,
    values: tuple[int, int],
    mark: int,
) -> WrittenCall:
    """Return a call, malformed unless its parts are a name and an object.

    Args:
        text: The response.
        span: Where the call starts and ends.
        name: The tool's name.
        arguments: A dictionary; or a string of JSON, which is kept as written.
        values: Offsets of the argument values.
        mark: Where the opening mark ends.
    """
    broken = WrittenCall(*span, mark=mark)
    written = arguments if isinstance(arguments, str) else ""
    if not written:
        if not isinstance(arguments, dict):
            return broken
        written = json.dumps(arguments, ensure_ascii=False)
    elif not is_object(written):
        return broken
    if not isinstance(name, str) or not name or name != name.strip():
        return broken
    if any(whole_text(part) != part for part in (name, written)):
        return broken  # half a surrogate pair cannot be sent or stored
    return WrittenCall(*span, name, written, values, mark)


def is_object(text: str) -> bool:
    """Return whether ``text`` is a JSON object."""
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


class JsonObject(NamedTuple):
    """A JSON object in a text: its fields with values and offsets, and its end."""

    fields: dict[str, tuple[Any, int, int]]
    end: int


_DECODER = json.JSONDecoder()
_OPEN, _COLON, _COMMA, _CLOSE = (
    re.compile(rf"\s*{mark}\s*") for mark in (r"\{", ":", ",", r"\}")
)
_END = re.compile(r"\s*\}")


def read_object(text: str, start: int) -> JsonObject | None:
    """Read the JSON object at ``start`` with the offsets of its values.

    If a key occurs twice, the last value counts, as for ``json.loads``. Returns None if
    the object is incomplete.
    """
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
    """Return the length of the longest suffix of ``text`` that starts ``mark``."""
    for count in range(min(len(mark) - 1, len(text)), 0, -1):
        if text.endswith(mark[:count]):
            return count
    return 0


def parameter_types(
    tools: Sequence[Mapping[str, Any]], name: str
) -> Mapping[str, frozenset[str]]:
    """Return the JSON types that each parameter of a tool may have.

    A parameter whose schema names no type is left out.
    """
    for tool in tools:
        function = tool.get("function", tool)
        if isinstance(function, Mapping) and function.get("name") == name:
            schema = function.get("parameters")
            found = schema.get("properties") if isinstance(schema, Mapping) else None
            if isinstance(found, Mapping):
                typed = {key: _types(value, schema, 0) for key, value in found.items()}
                return {key: types for key, types in typed.items() if types}
    return {}


def referred(reference: str, root: Any) -> Any:
    """Return the part of a schema that a ``$ref`` names, or None."""
    found = root
    for part in reference.removeprefix("#").strip("/").split("/"):
        found = found.get(part) if part and isinstance(found, Mapping) else found
    return found


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
    """Convert a text without quotes to a value of the parameter's type.

    Args:
        raw: The text between a parameter's marks.
        types: JSON types of the parameter; None or empty if its schema is not known:
            then the text is a string.
    """
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
