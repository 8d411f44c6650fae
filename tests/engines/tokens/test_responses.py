"""Responses: the text of each token, content and calls, whole and as they come."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from agentgym.core.components import Component
from agentgym.core.formats import FORMATS
from agentgym.core.tools import MALFORMED_CALL
from agentgym.core.trajectory import RequestedCall
from agentgym.engines.tokens.responses import (
    Detokenizer,
    GrowingContent,
    ResponseReader,
    requested_calls,
)
from tests.engines.conftest import make_tokenizer

READ = '<tool_call>{"name": "read", "arguments": {"path": "a"}}</tool_call>'


def parse_response(
    text: str, key: str, *, prefix: str = ""
) -> tuple[str, list[RequestedCall]]:
    reading = FORMATS["hermes"].read(text, prefix=prefix)
    return reading.content, requested_calls(reading, key)


def reader_of(tokenizer: PreTrainedTokenizerBase) -> ResponseReader:
    return ResponseReader(tokenizer, FORMATS["hermes"], frozenset({1}))


def test_a_malformed_call_is_one_of_a_tool_that_no_agent_has() -> None:
    broken = '<tool_call>{"name": "read", "arguments": {"path</tool_call>'
    content, calls = parse_response(broken + READ, "k")

    assert content == ""
    assert [call.name for call in calls] == [MALFORMED_CALL, "read"]
    assert json.loads(calls[0].arguments) == {"written": broken}


@pytest.mark.parametrize(
    "body",
    [
        r'{"name": "\ud800", "arguments": {}}',
        r'{"name": "f", "arguments": "{\"a\": \"\ud83d\"}"}',
    ],
)
def test_a_call_that_no_encoding_holds_is_malformed(body: str) -> None:
    """Half a surrogate pair can be sent neither as JSON nor as UTF-8."""
    content, calls = parse_response(f"<tool_call>{body}</tool_call>", "k")

    assert content == ""
    assert [call.name for call in calls] == [MALFORMED_CALL]


def test_a_pair_of_surrogates_is_a_character() -> None:
    text = r'<tool_call>{"name": "\ud83d\ude00", "arguments": {}}</tool_call>'

    assert parse_response(text, "k")[1][0].name == "\U0001f600"


def test_ids_depend_on_key_and_place() -> None:
    ids = [c.id for c in parse_response(READ + READ, "k")[1]]

    assert ids == [c.id for c in parse_response(READ + READ, "k")[1]]
    assert len(set(ids) | {c.id for c in parse_response(READ, "l")[1]}) == 3


def test_arguments_as_a_string_are_unwrapped() -> None:
    text = r'<tool_call>{"name": "f", "arguments": "{\"a\": 1}"}</tool_call>'

    assert parse_response(text, "k")[1][0].arguments == '{"a": 1}'


def test_a_call_that_is_only_considered_is_no_call() -> None:
    thought = f"Shall I {READ}? No.\n"

    for text in (f"{thought}</think>\n\nSorry.", f"<think>{thought}</think>Sorry."):
        assert parse_response(text, "k") == ("Sorry.", [])
    assert parse_response(thought, "k", prefix="<think>") == ("", [])


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerBase:
    return make_tokenizer()


def test_reasoning_that_the_prompt_began_and_nothing_ended_is_reasoning(
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    thought = '<tool_call>{"name": "read", "arguments": {"a": 1}}</tool_call>'
    ids, prompt = tokenizer.encode(thought), tokenizer.encode("read <think>")
    reader = reader_of(tokenizer)

    within = reader.label(prompt, ids, [])
    assert within is not None
    assert {c for labels in within for c in labels} == {Component.REASONING}
    outside = reader.label(tokenizer.encode("read"), ids, [])
    assert outside is not None
    assert {c for labels in outside for c in labels} == {
        Component.TOOL_SELECTION,
        Component.PARAMETER_SELECTION,
    }


def byte_fallback_tokenizer() -> PreTrainedTokenizerFast:
    """A tokenizer of SentencePiece's kind: it drops the first space of a text."""
    spoken = ["<unk>", "\u2581", "\u2581read", "\u2581\u2581", "a", "\ufffd", "\u65e5"]
    odd = [f"<0x{byte:02X}>" for byte in "\u00e9\u65e5".encode() + b"a\xff"]
    vocabulary = {word: i for i, word in enumerate(dict.fromkeys(spoken + odd))}
    words = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
    steps = [
        decoders.Replace("\u2581", " "),
        decoders.ByteFallback(),
        decoders.Fuse(),
        decoders.Strip(" ", 1, 0),
    ]
    words.decoder = decoders.Sequence(steps)
    return PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unk>")


BYTE_LEVEL, BYTE_FALLBACK = make_tokenizer(), byte_fallback_tokenizer()


def pieces_by_decoding_all_each_time(
    tokenizer: PreTrainedTokenizerBase, ids: list[int]
) -> list[str] | None:
    pieces, done = [], ""
    for count in range(1, len(ids) + 1):
        text = str(tokenizer.decode(ids[:count]))
        if text.endswith("\ufffd") and count < len(ids):
            text = done
        if not text.startswith(done):
            return None
        pieces.append(text[len(done) :])
        done = text
    return pieces


@pytest.mark.parametrize("tokenizer", [BYTE_LEVEL, BYTE_FALLBACK])
@given(data=st.data())
def test_pieces_are_those_of_the_whole_text(
    tokenizer: PreTrainedTokenizerBase, data: st.DataObject
) -> None:
    ids = data.draw(st.lists(st.integers(0, len(tokenizer) - 1), max_size=24))
    single = [str(tokenizer.decode([i])) for i in ids]
    if "".join(single) == tokenizer.decode(ids):
        assert Detokenizer(tokenizer).pieces(ids) == single
    else:
        expected = pieces_by_decoding_all_each_time(tokenizer, ids)
        assert Detokenizer(tokenizer).pieces(ids) == expected


def visible(text: str) -> str:
    """Return what of a response so far is content for certain."""
    shown = text.partition("<tool_call>")[0]
    ends = [n for n in range(1, 12) if shown.endswith("<tool_call>"[:n])]
    shown = shown[: len(shown) - max(ends, default=0)]
    return shown if shown.strip() else ""


@pytest.mark.slow
@given(data=st.data())
def test_a_stream_shows_whole_characters_and_no_call(data: st.DataObject) -> None:
    words = [" ", "<", "<tool", "_call>", "<tool_call>", "a", "é", "日", "\U0001f600"]
    tokens = {i for word in words for i in BYTE_LEVEL.encode(word)} - {1}
    ids = data.draw(st.lists(st.sampled_from(sorted(tokens)), max_size=24))
    stream = GrowingContent(reader_of(BYTE_LEVEL), "")
    shown = whole = ""
    for count, token in enumerate(ids, 1):
        shown += stream.add(token)
        text = str(BYTE_LEVEL.decode(ids[:count]))
        whole = whole if text.endswith("\ufffd") else text
        assert shown == visible(whole)
        assert stream.sent == len(shown)
    assert stream.add(1) == ""


def test_the_work_of_a_stream_grows_with_its_length_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tokenizer = make_tokenizer()
    ids = tokenizer.encode("\U0001f600 " + "read the file " * 100)
    decode, lengths = tokenizer.decode, list[int]()

    def counted(ids: list[int], **settings: Any) -> Any:
        lengths.append(len(ids))
        return decode(ids, **settings)

    monkeypatch.setattr(tokenizer, "decode", counted)
    stream = GrowingContent(reader_of(tokenizer), "")

    assert "".join(map(stream.add, ids)) == decode(ids)
    assert sum(lengths) < 20 * len(ids)
