"""Parse tool calls of gpt-oss: messages with headers such as ``to=functions.f``."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from agentgym.core.components import OUTPUT, REASONING, TOOL, Span
from agentgym.core.formats.base import Reading, ToolFormat, WrittenCall, call_of

_MESSAGE = re.compile(
    r"(?P<header>(?:<\|start\|>assistant)?[^<]*(?:<\|(?:channel|constrain)\|>[^<]*)*)"
    r"<\|message\|>(?P<body>.*?)(?P<end><\|(?:end|call|return)\|>|(?=<\|start\|>)|\Z)",
    re.DOTALL,
)
_RECIPIENT = re.compile(r"\bto=functions\.([^\s<]+)")
_CHANNEL = re.compile(r"<\|channel\|>\s*(\w+)")


class Harmony(ToolFormat):
    """Reads tool calls that are messages; the header names the function to call."""

    name = "harmony"
    vllm_parser = "openai"
    openers = ("to=functions.",)
    reasoning_marks = ()
    end_marks = ("<|call|>", "<|return|>", "<|end|>")
    example = '<|channel|>commentary to=functions.f<|message|>{"k": 1}<|call|>'

    def find_calls(
        self, text: str, start: int, tools: Sequence[Mapping[str, Any]]
    ) -> list[WrittenCall]:
        """Return the messages from ``start`` on whose header names a function."""
        found = (_call(text, m) for m in _MESSAGE.finditer(text, start))
        return [call for call in found if call is not None]

    def read(
        self,
        text: str,
        *,
        prefix: str = "",
        tools: Sequence[Mapping[str, Any]] = (),
        end: str = "",
    ) -> Reading:
        """Parse a response message by message; see :meth:`ToolFormat.read`."""
        if end and end not in self.end_marks:
            found = self.read(text.removesuffix(end), prefix=prefix, tools=tools)
            ending = Span(len(found.text), len(text), TOOL)
            return replace(found, text=text, spans=(*found.spans, ending))
        spans: list[Span] = []
        calls: list[WrittenCall] = []
        content, reasoning, at = "", [], 0
        for message in _MESSAGE.finditer(text):
            if at < message.start():
                spans.append(Span(at, message.start(), OUTPUT))
            at = message.end()
            call = _call(text, message)
            if call is not None:
                calls.append(call)
                spans += call.spans()
                continue
            channel = _CHANNEL.search(message["header"])
            is_reasoning = channel is not None and channel[1] == "analysis"
            kind = REASONING if is_reasoning else OUTPUT
            if is_reasoning:
                reasoning.append(message["body"])
            else:
                content += message["body"]
            last = message.start("end") if message["end"] == end else at
            spans += [Span(message.start(), last, kind), Span(last, at, TOOL)]
        rest = text[at:]
        if rest:
            # A cut-off header: if it names a function, the call counts as malformed.
            addressed = _RECIPIENT.search(rest)
            if addressed:
                calls.append(WrittenCall(at, len(text), mark=at + addressed.start()))
                spans += calls[-1].spans()
            else:
                spans.append(Span(at, len(text), OUTPUT))
                content += "" if "<|" in rest else rest
        tiled = tuple(span for span in spans if span.start < span.end)
        return Reading(text, tiled, tuple(calls), content, "\n".join(reasoning).strip())

    def thinks(self, prefix: str) -> bool:
        """Return False: the model writes the header of each message itself."""
        return False

    def safe_content(self, text: str, *, prefix: str = "") -> str:
        """Return the text for the user in an unfinished answer; ignore ``prefix``."""
        shown = ""
        for message in _MESSAGE.finditer(text):
            channel = _CHANNEL.search(message["header"])
            if _RECIPIENT.search(message["header"]):
                continue
            if channel is None or channel[1] != "analysis":
                body = message["body"]
                cut = body.rfind("<") if not message["end"] else -1
                shown += (
                    body[:cut]
                    if cut >= 0 and "<|".startswith(body[cut : cut + 2])
                    else body
                )
        return shown


def _call(text: str, message: re.Match[str]) -> WrittenCall | None:
    recipient = _RECIPIENT.search(message["header"])
    if recipient is None:
        return None
    values = message.span("body")
    mark = (
        recipient.start(1) if message.start() <= recipient.start(1) else message.start()
    )
    return call_of(message.span(), recipient[1], message["body"].strip(), values, mark)
