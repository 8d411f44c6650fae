import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentgym.core.components import (
    Component,
    Components,
    Span,
    is_trained,
    label_tokens,
)
from agentgym.core.formats import FORMATS, Reading, WrittenCall

TOOL, PARAMETERS = Component.TOOL_SELECTION, Component.PARAMETER_SELECTION
REASONING, OUTPUT = Component.REASONING, Component.OUTPUT_GENERATION
END = "<|end|>"
CALL = '<tool_call>{"name": "read", "arguments": {"path": "a b"}}</tool_call>'


def pieces_of(text: str) -> list[str]:
    """Split as a tokenizer with JSON skeleton tokens would."""
    pattern = (
        r"</?tool_call>|<\|end\|>|</?think>|"
        r'\{"name": "|", "arguments": \{"|": "|"\}\}|\w+|\s|.'
    )
    return re.findall(pattern, text)


def read(text: str, *, thinking: bool = False) -> Reading:
    end = END if text.endswith(END) else ""
    return FORMATS["hermes"].read(text, prefix="<think>" * thinking, end=end)


def find_calls(text: str, *, thinking: bool = False) -> tuple[WrittenCall, ...]:
    return read(text, thinking=thinking).calls


def label(pieces: list[str], *, ended: bool) -> list[Components]:
    return label_tokens(pieces, read("".join(pieces)).spans, ended=ended)


def labelled(text: str, *, ended: bool = True) -> list[tuple[str, set[Component]]]:
    pieces = pieces_of(text)
    labels = label(pieces, ended=ended)
    return [(p, set(c)) for p, c in zip(pieces, labels, strict=True)]


def test_a_call_has_a_tool_a_skeleton_and_arguments() -> None:
    assert labelled(CALL + END) == [
        ("<tool_call>", {TOOL}),
        ('{"name": "', {TOOL}),
        ("read", {TOOL}),
        ('", "arguments": {"', {TOOL, PARAMETERS}),
        ("path", {PARAMETERS}),
        ('": "', {PARAMETERS}),
        ("a", {PARAMETERS}),
        (" ", {PARAMETERS}),
        ("b", {PARAMETERS}),
        ('"}}', {TOOL, PARAMETERS}),
        ("</tool_call>", {TOOL}),
        (END, {TOOL}),
    ]


def test_the_first_token_of_an_answer_is_the_decision_not_to_call() -> None:
    labels = labelled("All is done" + END)

    assert labels[0] == ("All", {TOOL})
    assert {frozenset(c) for _, c in labels[1:-1]} == {frozenset({OUTPUT})}
    assert labels[-1] == (END, {TOOL})


def test_text_before_a_call_is_output_but_its_first_token_decides() -> None:
    labels = labelled("I will look " + CALL + END)

    assert labels[0] == ("I", {TOOL})
    assert labels[2] == ("will", {OUTPUT})
    assert ("<tool_call>", {TOOL}) in labels


def test_reasoning_is_not_the_decision() -> None:
    text = "<think>call <tool_call> now</think>\n" + CALL + END
    labels = labelled(text)
    marker = [i for i, (p, _) in enumerate(labels) if p == "<tool_call>"]

    assert all(c == {REASONING} for _, c in labels[: marker[1] - 1])
    assert labels[marker[1]][1] == {TOOL}
    assert len(find_calls(text)) == 1


def test_reasoning_that_the_prompt_began_ends_where_the_response_ends_it() -> None:
    """Templates of reasoning models write ``<think>`` into the prompt."""
    considered = CALL.replace("a b", "</think>")
    text = f"Shall I {CALL} or {considered}? No.</think>\n{CALL}{END}"
    labels = labelled(text)
    second = text.rindex("<tool_call>")

    for thinking in (False, True):
        assert [s.start for s in find_calls(text, thinking=thinking)] == [second]
    reasoning = [i for i, (_, c) in enumerate(labels) if c == {REASONING}]
    assert reasoning == list(range(len(pieces_of(text[: text.index("\n")]))))
    assert ("<tool_call>", {TOOL}) in labels
    assert (END, {TOOL}) in labels


def test_an_argument_that_names_the_end_of_reasoning_does_not_end_it() -> None:
    text = CALL.replace("a b", "</think>") + END

    assert [span.name for span in find_calls(text)] == ["read"]
    assert labelled(text)[0] == ("<tool_call>", {TOOL})


@pytest.mark.parametrize("text", ["Shall I " + CALL, CALL, "Well" + END, "I <tool_"])
def test_reasoning_that_the_prompt_began_and_nothing_ended_holds_no_call(
    text: str,
) -> None:
    reading = read(text, thinking=True)

    assert (reading.calls, reading.content) == ((), "")
    assert read(text + "</think>", thinking=True).reasoning == text.strip()


def test_reasoning_that_is_cut_off_decides_nothing() -> None:
    labels = labelled("<think>I might call", ended=False)

    assert all(components == {REASONING} for _, components in labels)


def test_an_unended_response_has_no_decision_to_stop() -> None:
    labels = labelled("All is done", ended=False)

    assert labels[-1] == ("done", {OUTPUT})


@pytest.mark.parametrize(
    "body",
    [
        '{"name": "read", "arguments": {"path": "a}}',
        '{"name": "read"}',
        '{"name": "read", "arguments": [1]}',
        '{"name": "read", "arguments": "no json"}',
        '{"name": 3, "arguments": {}}',
        '{"name": "", "arguments": {}}',
        '{"name": "a", "arguments": {}} and more',
        r'{"name": "\ud800", "arguments": {}}',
        r'{"name": "a", "arguments": "{\"b\": \"\udc00\"}"}',
        "",
    ],
)
def test_a_malformed_call_belongs_to_both_components_as_a_whole(body: str) -> None:
    text = f"<tool_call>{body}</tool_call>{END}"
    (span,) = find_calls(text)
    labels = labelled(text)

    assert span.malformed
    assert labels[0] == ("<tool_call>", {TOOL})
    assert all(c == {TOOL, PARAMETERS} for _, c in labels[1:-1])
    both = {"tool_selection": True, "parameter_selection": True}
    one = {"tool_selection": False, "parameter_selection": True}
    inner = label(pieces_of(text), ended=True)[1:-1]
    assert all(is_trained(c, both) for c in inner)
    assert not any(is_trained(c, one) for c in inner)


def test_a_call_that_is_cut_off_is_malformed() -> None:
    text = '<tool_call>{"name": "read", "arguments": {"path'
    labels = labelled(text, ended=False)

    assert find_calls(text)[0].malformed
    assert labels[-1][1] == {TOOL, PARAMETERS}


def test_a_token_without_text_of_its_own_is_labelled_as_what_follows() -> None:
    pieces = ["<tool_call>", '{"name": "f", "arguments": {"a": "', "", "é"]
    labels = label([*pieces, '"}}', "</tool_call>", END], ended=True)

    assert set(labels[2]) == {PARAMETERS}


@given(st.text(alphabet='<tool_call>/{}":, abnamergust\n', max_size=80))
def test_any_text_is_labelled_token_by_token(text: str) -> None:
    labels = label(list(text), ended=False)

    assert len(labels) == len(text)
    assert all(labels)
    for span in find_calls(text):
        assert 0 <= span.start < span.end <= len(text)


def test_untrainable_components_are_not_trained() -> None:
    assert is_trained(frozenset({TOOL}), {"tool_selection": True})
    assert not is_trained(frozenset({TOOL, OUTPUT}), {"tool_selection": True})
    assert not is_trained(frozenset({TOOL}), {})


def test_a_token_with_the_end_of_reasoning_is_not_the_decision() -> None:
    """It would be trained by half; the next one decides."""
    pieces = ["hm</think", ">\n\n[", "f()]"]
    text = "".join(pieces)
    closed = text.index("[") - 2
    thought, said = frozenset({REASONING}), frozenset({OUTPUT})
    spans = [Span(0, closed, thought), Span(closed, len(text), said)]
    labels = label_tokens(pieces, spans, ended=False)

    assert labels == [thought, thought | said, frozenset({TOOL})]
