"""Components: which part of a response each of its tokens belongs to.

A response is text with tool calls in Hermes form,
``<tool_call>{"name": "x", "arguments": {...}}</tool_call>``. Every token belongs to
the components of the characters it covers, and is trained only if *all* of them are
trainable, so a token that straddles a boundary is never trained by half.

What belongs to tool selection, and why it is more than the tool's name: the first
token of a response is the decision to call a tool or to answer; the ``<tool_call>``
marker is the decision to call after some text; ``</tool_call>`` and the end token are
the decision to stop or to go on. If only the name were trained, failing calls would be
pushed down while "answer instead" got no gradient, and calling would die out.

A call that does not parse has no boundary between name and arguments. Its tokens
belong to both components: they are trained where both are trainable (so that the
policy can unlearn malformed calls) and masked otherwise.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from agentgym.core.tools import whole_text

OPEN_THINKING = "<think>"
OPEN_CALL = "<tool_call>"
CLOSE_CALL = "</tool_call>"
_CALL = re.compile(rf"{OPEN_CALL}(.*?)(?:{CLOSE_CALL}|(?={OPEN_CALL})|\Z)", re.DOTALL)
_THINKING = re.compile(r"\s*<think>.*?(?:</think>|\Z)", re.DOTALL)
_CLOSE_THINKING = re.compile("</think>")
_OPEN, _COLON, _COMMA, _CLOSE = (
    re.compile(rf"\s*{mark}\s*") for mark in (r"\{", ":", ",", r"\}")
)
_FIELDS = {"name", "arguments"}
_DECODER = json.JSONDecoder()


class Component(StrEnum):
    """A kind of span in a response."""

    TOOL_SELECTION = "tool_selection"
    PARAMETER_SELECTION = "parameter_selection"
    REASONING = "reasoning"
    OUTPUT_GENERATION = "output_generation"


_BOTH = frozenset({Component.TOOL_SELECTION, Component.PARAMETER_SELECTION})
_TOOL = frozenset({Component.TOOL_SELECTION})
_PARAMETERS = frozenset({Component.PARAMETER_SELECTION})
_REASONING = frozenset({Component.REASONING})
_OUTPUT = frozenset({Component.OUTPUT_GENERATION})

Components = frozenset[Component]


@dataclass(frozen=True)
class CallSpan:
    """Where one tool call stands in a response's text.

    Attributes:
        start: Of ``<tool_call>``.
        end: After ``</tool_call>``, or where the text of an unclosed call ends.
        name: The tool; None if the call is malformed.
        arguments: The arguments as written, JSON; None if the call is malformed.
        arguments_start: Where the arguments' value starts in the text.
        arguments_end: After it.
    """

    start: int
    end: int
    name: str | None = None
    arguments: str | None = None
    arguments_start: int = -1
    arguments_end: int = -1

    @property
    def malformed(self) -> bool:
        """Whether the call cannot be read as a name and arguments."""
        return self.name is None


def find_calls(text: str, *, thinking: bool = False) -> list[CallSpan]:
    """Return the tool calls in ``text``, malformed ones included, in order.

    Arguments may be a JSON object or a JSON string that holds one. What stands within
    ``<think>``, or before a ``</think>`` that nothing in the text opens, is no call;
    ``thinking`` says that the text's prompt ends in an open ``<think>``.
    """
    return _calls_from(_reasoning_end(text, thinking=thinking), text)


def is_unended_reasoning(text: str) -> bool:
    """Return whether all of a response is reasoning that its prompt began.

    Nothing in such a response says so: :func:`label_tokens` would take it for an
    answer.
    """
    return _reasoning_end(text, thinking=True) != _reasoning_end(text)


def label_tokens(pieces: Sequence[str], *, ended: bool) -> list[Components]:
    """Return the components of each token of a response.

    Args:
        pieces: The text of each token, in order, special tokens included; what they
            join to is the response. An empty piece (a byte of a character that a
            later token completes) takes the components of what follows.
        ended: Whether the last token is an end token, not one cut off by a limit.

    Returns:
        One non-empty set per token: the components of the characters it covers.
    """
    text = "".join(pieces)
    by_character = _label_characters(text)
    labels: list[Components] = []
    start = 0
    for piece in pieces:
        end = start + max(1, len(piece))
        found = frozenset[Component]().union(*by_character[start:end])
        labels.append(found or _OUTPUT)
        start += len(piece)
    if labels:
        decision = _decision(pieces, by_character)
        if labels[decision] != _REASONING:
            labels[decision] = _TOOL
        labels[-1] = _TOOL if ended else labels[-1]
    return labels


def is_trained(components: Components, trainable: Mapping[str, bool]) -> bool:
    """Return whether the loss covers a token of these components."""
    return all(trainable.get(component, False) for component in components)


def _label_characters(text: str) -> list[Components]:
    labels = [_OUTPUT] * len(text)

    def mark(start: int, end: int, components: Components) -> None:
        labels[start:end] = [components] * (end - start)

    mark(0, _reasoning_end(text), _REASONING)
    for span in find_calls(text):
        mark(span.start, span.end, _BOTH if span.malformed else _TOOL)
        if span.malformed:
            mark(span.start, span.start + len(OPEN_CALL), _TOOL)
        else:
            mark(span.arguments_start, span.arguments_end, _PARAMETERS)
    return labels


def _reasoning_end(text: str, *, thinking: bool = False) -> int:
    """Return where the reasoning ends that the text, or its prompt, begins.

    A ``</think>`` among a call's arguments ends nothing.
    """
    if own := _THINKING.match(text):
        return own.end()
    closing = list(_CLOSE_THINKING.finditer(text))
    calls = [c for c in _calls_from(0, text) if not c.malformed] if closing else []
    for match in closing:
        if not any(call.start < match.start() < call.end for call in calls):
            return match.end()
    return len(text) if thinking else 0


def _calls_from(start: int, text: str) -> list[CallSpan]:
    return [_read_call(text, match) for match in _CALL.finditer(text, start)]


def _decision(pieces: Sequence[str], by_character: Sequence[Components]) -> int:
    """Return the token that decides: the first one with text that is no reasoning."""
    start = 0
    for index, piece in enumerate(pieces):
        covered = by_character[start : start + len(piece)]
        start += len(piece)
        if piece.strip() and any(label != _REASONING for label in covered):
            return index
    return len(pieces) - 1


def _read_call(text: str, match: re.Match[str]) -> CallSpan:
    """Read one call; whatever is not exactly a name and arguments is malformed."""
    start, end = match.span()
    malformed = CallSpan(start, end)
    if not match[0].endswith(CLOSE_CALL):
        return malformed
    fields: dict[Any, tuple[Any, int, int]] = {}
    try:
        at = _after(_OPEN, text, match.start(1))
        while True:
            key, at = _DECODER.raw_decode(text, at)
            first = _after(_COLON, text, at)
            value, at = _DECODER.raw_decode(text, first)
            if key in fields:
                return malformed
            fields[key] = (value, first, at)
            if not (comma := _COMMA.match(text, at)):
                break
            at = comma.end()
        if _after(_CLOSE, text, at) != match.end(1) or set(fields) != _FIELDS:
            return malformed
        name, (arguments, first, last) = fields["name"][0], fields["arguments"]
        written = arguments if isinstance(arguments, str) else text[first:last]
        if isinstance(arguments, str):
            arguments = json.loads(arguments)
    except (ValueError, TypeError, RecursionError):
        return malformed
    if not isinstance(name, str) or not name or not isinstance(arguments, dict):
        return malformed
    if any(whole_text(part) != part for part in (name, written)):
        return malformed
    return CallSpan(start, end, name, written, first, last)


def _after(mark: re.Pattern[str], text: str, at: int) -> int:
    found = mark.match(text, at)
    if found is None:
        raise ValueError(f"{mark.pattern} is missing")
    return found.end()
