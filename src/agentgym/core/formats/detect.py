"""Detect the format in which a chat template writes tool calls.

The template renders a test call; the format that can parse this call is the right one,
so fine-tunes and local folders work like their base models.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product, takewhile
from typing import Any, Protocol

from agentgym.core.formats.base import CallText, ToolFormat, WrittenCall
from agentgym.errors import ModelError

Message = dict[str, Any]

_NAME, _TEXT, _COUNT = "probe_tool", "probe value", 7
PROBE_TOOL: Mapping[str, Any] = {
    "type": "function",
    "function": {
        "name": _NAME,
        "description": "Probe.",
        "parameters": {
            "type": "object",
            "properties": {
                "text": {"type": "string", "description": "Any text."},
                "count": {"type": "integer", "description": "Any number."},
            },
            "required": ["text", "count"],
        },
    },
}
_ARGUMENTS = {"text": _TEXT, "count": _COUNT}
_ASKED: Message = {"role": "user", "content": "u"}
_LONG_ID, SHORT_ID = "call_0123456789abcdef01", "call00000"
_THOUGHT = "probe thought"
PREFIX = 200
"""Number of last characters of a prompt that are searched for a reasoning mark."""


class Render(Protocol):
    """Renders messages with a chat template; raises the template's own errors."""

    def __call__(
        self, messages: list[Message], tools: list[Message], *, prompt: bool
    ) -> str:
        """Return the rendered text; ``prompt`` appends the generation prompt."""


@dataclass(frozen=True)
class TemplateForm:
    """How a chat template writes and expects tool calls.

    Attributes:
        short_ids: Whether call ids must have exactly nine letters and digits.
        one_call: Whether an answer may have one call only. With several calls, the
            template fails or leaves some out.
    """

    format: ToolFormat
    takes_objects: bool
    short_ids: bool = False
    begins_reasoning: bool = False
    one_call: bool = False
    written: str = ""

    def call_text(self, name: str) -> CallText | None:
        """Return the text around a call's arguments.

        None if no grammar can restrict it.
        """
        return self.format.call_text(name, self.written)


def find_form(
    model: str, render: Render, formats: Mapping[str, ToolFormat], *, forced: str = ""
) -> TemplateForm:
    """Detect how a chat template writes tool calls, if not ``forced`` to a format."""
    first_error = ""
    written = ""
    found: list[TemplateForm] = []
    for call_id, as_object in product((_LONG_ID, SHORT_ID), (False, True)):
        try:
            before, answer = _probe(render, as_object=as_object, call_id=call_id)
        except Exception as error:  # noqa: BLE001 templates may raise anything
            first_error = first_error or str(error)
            continue
        if _NAME not in before:
            raise ModelError(
                f"The chat template of {model!r} does not show the model which tools "
                f"there are. {_ADVICE}"
            )
        written = written or answer
        for form in [formats[forced]] if forced else formats.values():
            if any(form.name == known.format.name for known in found):
                continue
            call = _read_back(form, before, answer, formats, as_object=as_object)
            if call is not None:
                found.append(
                    TemplateForm(
                        form,
                        as_object,
                        short_ids=call_id == SHORT_ID,
                        begins_reasoning=form.thinks(_prompt(render)[-PREFIX:]),
                        one_call=_takes_one_call(render, as_object, call_id),
                        written=answer[call.start : call.end],
                    )
                )
    if len(found) == 1:
        return found[0]
    raise ModelError(_refusal(model, first_error, written, found, forced))


def keeps_reasoning(render: Render, form: ToolFormat | None = None) -> bool:
    """Return whether a template keeps the reasoning of earlier answers in a prompt.

    If it does not, earlier answers no longer have the tokens that were sampled.
    """
    marks = form.reasoning_marks if form is not None else ()
    texts = [f"{opening}{_THOUGHT}{closing}" for opening, closing in marks]
    answers: list[Message] = [{"content": "a", field: _THOUGHT} for field in _FIELDS]
    answers += [{"content": f"{text}a"} for text in texts]
    return not any(_is_dropped(render, answer) for answer in answers)


_FIELDS = "reasoning_content", "reasoning", "thinking"
"""Message fields in which templates read reasoning: Qwen's, Gemma's, gpt-oss's."""


def _is_dropped(render: Render, answer: Message) -> bool:
    """Return whether a template drops an answer's reasoning after the next request."""
    said: list[Message] = [_ASKED, {"role": "assistant", **answer}]
    try:
        shown = _THOUGHT in render(said, [], prompt=False)
        later = render([*said, {"role": "user", "content": "v"}], [], prompt=True)
    except Exception:  # noqa: BLE001 templates may raise anything
        return False
    return shown and _THOUGHT not in later


_ADVICE = (
    "Give a template that does: --set chat_template=FILE, or --set "
    "chat_template=hermes for one that ships with agentgym."
)


def _probe(render: Render, *, as_object: bool, call_id: str) -> tuple[str, str]:
    """Render a test prompt and a test call; return the texts of both."""
    answer = _answer(_call(_ARGUMENTS, as_object, call_id))
    result: Message = {
        "role": "tool", "tool_call_id": call_id, "name": _NAME, "content": "r",
    }  # fmt: skip
    tools = [dict(PROBE_TOOL)]
    before = _prompt(render)
    render([_ASKED, answer, result], tools, prompt=True)  # must not raise either
    whole = render([_ASKED, answer], tools, prompt=False)
    shared = zip(before, whole, strict=False)
    common = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], shared))
    return before[:common], whole[common:]


def _prompt(render: Render) -> str:
    return render([_ASKED], [dict(PROBE_TOOL)], prompt=True)


def _call(arguments: Mapping[str, Any], as_object: bool, call_id: str) -> Message:
    given: Any = arguments if as_object else json.dumps(arguments)
    function = {"name": _NAME, "arguments": given}
    return {"id": call_id, "type": "function", "function": function}


def _answer(*calls: Message) -> Message:
    return {"role": "assistant", "content": "", "tool_calls": list(calls)}


def _takes_one_call(render: Render, as_object: bool, call_id: str) -> bool:
    """Return whether a template cannot write two calls in one answer."""
    texts = "first value", "second value"
    calls = [
        _call({"text": text, "count": number}, as_object, f"{call_id[:-1]}{number}")
        for number, text in enumerate(texts)
    ]
    try:
        written = render([_ASKED, _answer(*calls)], [dict(PROBE_TOOL)], prompt=False)
    except Exception:  # noqa: BLE001 templates may raise anything
        return True
    return not all(text in written for text in texts)


def _read_back(
    form: ToolFormat,
    before: str,
    answer: str,
    formats: Mapping[str, ToolFormat],
    *,
    as_object: bool,
) -> WrittenCall | None:
    """Return the test call as ``form`` reads it from ``answer``.

    None if it misreads it.
    """
    if not as_object and json.dumps(_ARGUMENTS) not in answer:
        return None  # the template wrote the JSON text as a quoted string
    reading = form.read(answer, prefix=before[-PREFIX:], tools=[PROBE_TOOL])
    if len(reading.calls) != 1:
        return None
    call = reading.calls[0]
    if call.name != _NAME or json.loads(call.arguments or "null") != _ARGUMENTS:
        return None
    rest = answer[: call.start] + answer[call.end :]
    others = {opener for other in formats.values() for opener in other.openers}
    if any(opener in rest for opener in others - set(form.openers)):
        return None
    if set(rest) & set('{}"'):
        return None  # only a part of a larger call was read
    return call


def _refusal(
    model: str,
    error: str,
    written: str,
    found: Sequence[TemplateForm],
    forced: str,
) -> str:
    if not written:
        error = error.rstrip(". ")
        refused = f"The chat template of {model!r} cannot render a tool call: {error}."
        return f"{refused} {_ADVICE}"
    shown = written if len(written) <= 200 else f"{written[:200]}…"
    if found:
        names = " and ".join(form.format.name for form in found)
        return (
            f"The chat template of {model!r} writes calls that can be read as {names}: "
            f"{shown!r}. Choose one with --set tool_format=NAME."
        )
    if _TEXT not in written:
        return (
            f"The chat template of {model!r} leaves out the tool calls of earlier "
            f"turns. {_ADVICE}"
        )
    if written.count(_TEXT) > 1:
        return (
            f"The chat template of {model!r} writes each call more than once, or in "
            f"more than one form: {shown!r}. {_ADVICE}"
        )
    what = (
        f"do not read back as the form {forced!r}" if forced else "are of no known form"
    )
    return f"The tool calls of {model!r}'s chat template {what}: {shown!r}. {_ADVICE}"
