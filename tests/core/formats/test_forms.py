# ruff: noqa: E501
"""What every form promises: calls are read as they were written, wherever text ends."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym.core.components import OUTPUT, PARAMETERS, REASONING
from agentgym.core.components import TOOL as SELECTION
from agentgym.core.formats import FORMATS, Reading
from tests.core.formats.writing import ALL, TOOL, write

ODD = [
    "    def f():\n        return 1",
    "",
    " ",
    'it\'s "quoted" \\ back',
    "</parameter> within",
    "<parameter=x> within",
    "a\n\nb\n",
    "</tool_call> and <tool_call>",
    "[TOOL_CALLS]x[ARGS]{}",
    "日本語 🎉 é",
    "{'a': 1}",
    "null",
    "7",
    "True",
]


def read(form: str, text: str, **more: Any) -> Reading:
    return FORMATS[form].read(text, tools=[TOOL], **more)


def tiles(reading: Reading) -> bool:
    ends = [0, *(span.end for span in reading.spans)]
    return ends[-1] == len(reading.text) and all(
        span.start == end < span.end
        for span, end in zip(reading.spans, ends, strict=False)
    )


def covered(reading: Reading, components: frozenset[Any]) -> str:
    return "".join(
        reading.text[s.start : s.end]
        for s in reading.spans
        if s.components == components
    )


@pytest.mark.parametrize("form", ALL)
def test_odd_values_are_read_as_they_were_written(form: str) -> None:
    for value in ODD:
        arguments = {"text": value, "count": -3, "share": 1.5, "on": True}
        arguments |= {"items": ["a, b", value], "more": {"k": [1, {"l": value}]}}
        reading = read(form, write(form, "save", arguments))

        assert [call.name for call in reading.calls] == ["save"], value
        assert json.loads(reading.calls[0].arguments or "") == arguments, value
        assert not reading.content.strip()
        assert tiles(reading)


VALUES = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@pytest.mark.parametrize("form", ALL)
@given(text=VALUES, count=st.integers(), on=st.booleans())
@settings(max_examples=60, deadline=None)
def test_any_text_and_number_is_read_back(
    form: str, text: str, count: int, on: bool
) -> None:
    if form == "gemma" and "|" in text:
        text = text.replace("|", "")  # the quotes of this form have no escape
    arguments = {"text": text, "count": count, "on": on}
    (call,) = read(form, write(form, "save", arguments)).calls

    assert json.loads(call.arguments or "") == arguments


@pytest.mark.parametrize("form", ALL)
def test_two_calls_and_text_before_them(form: str) -> None:
    calls = [write(form, "save", {"text": "a"}), write(form, "save", {"count": 2})]
    if form == "harmony":
        said = "<|channel|>commentary<|message|>I look.<|end|><|start|>assistant"
        text = said + "<|start|>assistant".join(calls)
    elif form == "pythonic":
        text = "I look." + calls[0] + calls[1]
    elif form == "json":
        text = calls[0] + "; " + calls[1]
    else:
        text = "I look." + "\n".join(calls)
    reading = read(form, text)

    assert [json.loads(c.arguments or "") for c in reading.calls] == [
        {"text": "a"},
        {"count": 2},
    ]
    assert reading.content.strip() == ("" if form == "json" else "I look.")
    assert tiles(reading)


@pytest.mark.parametrize("form", ALL)
def test_name_and_marks_choose_the_tool_and_values_are_parameters(form: str) -> None:
    reading = read(form, write(form, "save", {"text": "some words"}))

    assert "save" in covered(reading, SELECTION)
    assert "some words" in covered(reading, PARAMETERS)
    assert "save" not in covered(reading, PARAMETERS)
    assert covered(reading, SELECTION) + covered(reading, PARAMETERS)
    assert not covered(reading, OUTPUT).strip()


@pytest.mark.parametrize("form", ALL)
def test_an_answer_may_end_anywhere(form: str) -> None:
    """Each beginning of an answer is read without an error and without a gap."""
    text = "I look." + write(form, "save", {"text": 'a "b" é', "items": ["x", "y"]})
    if form == "harmony":
        text = text.removeprefix("I look.")
    whole = read(form, text).calls[0]
    for end in range(len(text) + 1):
        reading = read(form, text[:end])
        assert tiles(reading)
        for call in reading.calls:
            if not call.malformed:  # what it says is what the whole answer says
                assert call.name == whole.name
                assert json.loads(call.arguments or "") == json.loads(
                    whole.arguments or ""
                )


@pytest.mark.parametrize("form", ALL)
def test_content_that_is_shown_early_is_content_at_the_end(form: str) -> None:
    said = "Well < [ { call: "
    text = said + write(form, "save", {"text": "a"})
    if form == "harmony":
        text = (
            f"<|channel|>commentary<|message|>{said}<|end|><|start|>assistant"
            + write(form, "save", {"text": "a"})
        )
    final = read(form, text).content
    shown = ""
    for end in range(len(text) + 1):
        safe = FORMATS[form].safe_content(text[:end])
        assert safe.startswith(shown)
        shown = safe
    assert final.startswith(shown)
    assert shown.startswith("Well")


@pytest.mark.parametrize("form", [f for f in ALL if f != "harmony"])
def test_reasoning_is_neither_content_nor_calls(form: str) -> None:
    opening, closing = FORMATS[form].reasoning_marks[0]
    thought = f"maybe {write(form, 'save', {'text': 'no'})}"
    call = write(form, "save", {"text": "yes"})
    text = f"{opening}\n{thought}\n{closing}\n{call}"

    for reading in (
        read(form, text),
        read(form, text.removeprefix(opening), prefix=f"x{opening}"),
    ):
        assert [json.loads(c.arguments or "") for c in reading.calls] == [
            {"text": "yes"}
        ]
        assert reading.reasoning == thought
        assert not reading.content.strip()
        assert thought in covered(reading, REASONING)
    unended = read(form, f"maybe {call}", prefix=opening)
    assert unended.calls == ()
    assert unended.content == ""
    closed = read(form, call, prefix=f"{opening}\n\n{closing}\n\n")
    assert len(closed.calls) == 1
    assert FORMATS[form].safe_content(f"maybe {call}", prefix=opening) == ""


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("hermes", '<tool_call>{"name": "save", "arguments": {"text": "a"</tool_call>'),
        ("hermes", '<tool_call>save(text="a")</tool_call>'),
        ("xml", "<tool_call><function=save><parameter=text>a</function></tool_call>"),
        ("xml", '<tool_call>{"name": "save", "arguments": {}}</tool_call>'),
        ("xml", "<tool_call><function=></function></tool_call>"),
        ("xml", "<tool_call><function=save><parameter=text>a</parameter>"),
        ("json", '{"name": "save", "parameters": {"text": "a"'),
        ("json", '{"name": "save", "parameters": [1]}'),
        ("harmony", "<|channel|>commentary to=functions.save<|message|>{'a'}<|call|>"),
        ("harmony", "<|channel|>commentary to=functions.save <|cons"),
        ("gemma", "<|tool_call>call:save{text:<tool_call|>"),
        ("gemma", '<|tool_call>save{text:<|"|>a<|"|>}<tool_call|>'),
        ("mistral", '[TOOL_CALLS]save[ARGS]{"text": '),
        ("mistral", '[TOOL_CALLS][{"name": "save"}]'),
        ("pythonic", "<|tool_call_start|>[save(a b)]<|tool_call_end|>"),
        ("pythonic", "<|tool_call_start|>[save('positional')]<|tool_call_end|>"),
    ],
)
def test_a_call_that_does_not_parse_is_seen_and_is_not_content(
    form: str, text: str
) -> None:
    reading = read(form, text)

    assert [call.malformed for call in reading.calls] == [True]
    assert reading.written == text
    assert reading.content == ""
    assert tiles(reading)


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("hermes", '<tool_call>{"name": "save", "arguments": {"text": "a"}}'),
        ("hermes", '```\n<tool_call>\n{"name":"save","arguments":{"text":"a"}}\n```\n'),
        ("hermes", '<tool_call>{"arguments": {"text": "a"}, "name": "save"}</tool_call>'),
        ("hermes", '<tool_call>{"name": "save", "arguments": "{\\"text\\": \\"a\\"}"}'),
        ("hermes", '<tool_call>{"id":1,"name":"save","arguments":{"text":"a"}}</tool_call>'),
        ("xml", "<function=save>\n<parameter=text>a</parameter></function>"),
        ("xml", "<tool_call>\n<function=save>\n<parameter=text>\na\n</parameter>\n</tool_call>"),
        ("json", '<|python_tag|>{"type": "function", "name": "save", "parameters": {"text": "a"}}'),
        ("json", '{"name": "save", "arguments": {"text": "a"}}<|eom_id|>'),
        ("harmony", ' to=functions.save<|channel|>commentary json<|message|>{"text": "a"}<|call|>'),
        ("harmony", ('<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>'
                    'commentary to=functions.save <|constrain|>json<|message|>{"text": "a"}')),
        ("gemma", "<start_function_call>call:save{text:<escape>a<escape>}<end_function_call>"),
        ("gemma", '<|tool_call>call:save{"text": "a"}<tool_call|>'),
        ("mistral", '[TOOL_CALLS][{"name": "save", "arguments": {"text": "a"}}]'),
        ("mistral", '[TOOL_CALLS]save[CALL_ID]abc[ARGS]{"text": "a"}'),
        ("pythonic", '[save(text="a")]'),
        ("pythonic", "<function_calls>\nsave(text='a')\n</function_calls>"),
    ],
)  # fmt: skip
def test_spellings_that_models_and_servers_know(form: str, text: str) -> None:
    (call,) = read(form, text).calls

    assert (call.name, json.loads(call.arguments or "")) == ("save", {"text": "a"})


def test_values_without_quotes_have_the_types_of_the_schema() -> None:
    def given(**values: str) -> Any:
        text = "".join(
            f"<parameter={key}>{value}</parameter>" for key, value in values.items()
        )
        (call,) = read("xml", f"<function=save>{text}</function>").calls
        return json.loads(call.arguments or "")

    assert given(text="7", count="7", on="true", maybe="null") == {
        "text": "7",
        "count": 7,
        "on": True,
        "maybe": None,
    }
    assert given(on="True", count="seven", items='["a"]', other="7") == {
        "on": True,
        "count": "seven",
        "items": ["a"],
        "other": "7",
    }
    assert given(text="\n  a\n\n") == {"text": "  a\n"}


def test_prose_with_braces_is_no_call() -> None:
    for form in ALL:
        text = 'Use {"a": 1} or f(x) and [1, 2].'
        if form == "harmony":
            text = f"<|channel|>final<|message|>{text}<|return|>"
        assert read(form, text).calls == (), form


def test_an_end_token_is_not_content() -> None:
    reading = read("hermes", "Done.<|im_end|>", end="<|im_end|>")

    assert reading.content == "Done."
    assert reading.spans[-1].components == SELECTION


def test_deep_nesting_is_malformed_and_ends_soon() -> None:
    for form, text in {
        "hermes": '<tool_call>{"name": "f", "arguments": {"a": ' + "[" * 100_000,
        "xml": "<function=f>" + "<parameter=a>" * 5_000,
        "gemma": "<|tool_call>call:f" + "{a:" * 20_000,
        "pythonic": "[f(a=" + "[" * 20_000,
        "mistral": "[TOOL_CALLS]f[ARGS]" + '{"a":' * 20_000,
        "json": '{"name": "f", "parameters": ' + "[" * 20_000,
    }.items():
        assert all(call.malformed for call in read(form, text).calls), form


def test_harmony_may_end_in_another_token() -> None:
    text = write("harmony", "save", {"text": "a"}).replace("<|call|>", "<|endoftext|>")
    reading = read("harmony", text, end="<|endoftext|>")

    assert [json.loads(c.arguments or "") for c in reading.calls] == [{"text": "a"}]
    assert tiles(reading)
