"""Rendering: the template's own text, and the sampled ids turn after turn."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from agentgym.engines.local.rendering import Detokenizer, Renderer
from agentgym.errors import EngineError
from tests.engines.conftest import TEMPLATE, make_tokenizer
from tests.engines.local.rollouts import TOOLS

SYSTEM = {"role": "system", "content": "Be brief."}
USER = {"role": "user", "content": "read the file"}
ASSISTANT = {
    "role": "assistant",
    "content": None,
    "tool_calls": [{"id": "1", "function": {"name": "read", "arguments": '{"a": 1}'}}],
}
PARSED = {
    **ASSISTANT,
    "tool_calls": [{"id": "1", "function": {"name": "read", "arguments": {"a": 1}}}],
}
RESULT = {"role": "tool", "tool_call_id": "1", "content": "é found"}

VERBATIM = (
    "c.function.arguments if c.function.arguments is string "
    "else c.function.arguments | tojson"
)


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerBase:
    return make_tokenizer()


def template(
    tokenizer: PreTrainedTokenizerBase, messages: list[dict[str, Any]], tools: Any
) -> str:
    text = tokenizer.apply_chat_template(
        messages, tools=tools or None, tokenize=False, add_generation_prompt=True
    )
    assert isinstance(text, str)
    return text


@pytest.mark.parametrize("tools", [TOOLS, []])
@pytest.mark.parametrize(
    "messages",
    [[SYSTEM, USER], [USER], [SYSTEM, USER, ASSISTANT, RESULT], [SYSTEM, USER, USER]],
)
def test_text_and_ids_are_the_templates_own(
    tokenizer: PreTrainedTokenizerBase, messages: list[dict[str, Any]], tools: Any
) -> None:
    renderer = Renderer(tokenizer)
    for _ in range(2):  # the second time from what is kept
        prompt = renderer.render(messages, tools)
        assert prompt.text == template(tokenizer, messages, tools)
        assert prompt.ids == tokenizer.encode(prompt.text, add_special_tokens=False)


def test_the_head_is_system_prompt_and_tools(
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    renderer = Renderer(tokenizer)
    prompts = [renderer.render([SYSTEM, m], TOOLS) for m in (USER, RESULT)]

    assert prompts[0].ids[: prompts[0].head] == prompts[1].ids[: prompts[1].head]
    head = renderer.decode(prompts[0].ids[: prompts[0].head])
    assert head.startswith("<|system|>Be brief.")
    assert head.endswith("<|end|>")
    assert "read(path)" in head


def test_a_template_that_mixes_tools_into_messages_is_rendered_as_a_whole() -> None:
    tokenizer = make_tokenizer()
    tokenizer.chat_template = (
        "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}"
        "{% if tools and m.role == 'user' %}{{ tools | length }}{% endif %}"
        "{% endfor %}"
    )
    prompt = Renderer(tokenizer).render([SYSTEM, USER], TOOLS)

    assert prompt.text == template(tokenizer, [SYSTEM, USER], TOOLS)
    assert prompt.text.endswith("file3")
    assert prompt.head == 0


def test_the_next_turn_goes_on_from_the_sampled_ids(
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    renderer = Renderer(tokenizer)
    first = renderer.render([SYSTEM, USER], TOOLS, "s")
    text = '<tool_call>{"name": "read", "arguments": {"a": 1}}</tool_call><|end|>'
    sampled = [i for c in text for i in tokenizer.encode(c, add_special_tokens=False)]
    renderer.remember("s", first, sampled)

    known = renderer.render([SYSTEM, USER, ASSISTANT, RESULT], TOOLS, "s")
    unknown = renderer.render([SYSTEM, USER, ASSISTANT, RESULT], TOOLS, "other")

    assert known.ids[: len(first.ids) + len(sampled)] == first.ids + sampled
    assert known.ids != unknown.ids
    assert known.text == unknown.text == renderer.decode(known.ids)


def test_a_template_that_writes_arguments_as_json_is_given_the_object() -> None:
    """Else it would quote them a second time, and no turn would be continued."""
    tokenizer = make_tokenizer()
    tokenizer.chat_template = TEMPLATE.replace(
        VERBATIM, "c.function.arguments | tojson"
    )
    renderer = Renderer(tokenizer)
    first = renderer.render([SYSTEM, USER], TOOLS, "s")
    said = '<tool_call>{"name": "read", "arguments": {"a": 1}}</tool_call><|end|>'
    sampled = tokenizer.encode(said, add_special_tokens=False)
    renderer.remember("s", first, sampled)
    second = renderer.render([SYSTEM, USER, ASSISTANT, RESULT], TOOLS, "s")

    assert second.text.startswith(first.text + said)
    assert second.ids[: len(first.ids) + len(sampled)] == first.ids + sampled
    assert second.text == template(tokenizer, [SYSTEM, USER, PARSED, RESULT], TOOLS)


def test_a_template_that_takes_only_objects_is_given_them() -> None:
    tokenizer = make_tokenizer()
    tokenizer.chat_template = TEMPLATE.replace(
        VERBATIM, "'{' ~ c.function.arguments.items() | map('join', ': ') | first ~ '}'"
    )
    prompt = Renderer(tokenizer).render([USER, ASSISTANT, RESULT], TOOLS)

    assert '"arguments": {a: 1}}</tool_call>' in prompt.text


@pytest.mark.parametrize("written", ['{"a":1,  "b": 2}', "no json", '{"a": 1', "[1]"])
def test_arguments_that_a_template_writes_as_they_are_stay_so(
    tokenizer: PreTrainedTokenizerBase, written: str
) -> None:
    call = {"id": "1", "function": {"name": "read", "arguments": written}}
    asked = [USER, {**ASSISTANT, "tool_calls": [call]}, RESULT]

    prompt = Renderer(tokenizer).render(asked, TOOLS)
    assert f'"arguments": {written}}}</tool_call>' in prompt.text


@pytest.mark.parametrize(
    ("opening", "begins"),
    [
        ("<think>\n", True),
        ("<think>", True),
        ("", False),
        ("<think>\n\n</think>\n\n", False),
    ],
)
def test_it_is_known_whether_prompts_begin_the_reasoning(
    opening: str, begins: bool
) -> None:
    tokenizer = make_tokenizer()
    tokenizer.chat_template = TEMPLATE.replace(
        "<|assistant|>{%", f"<|assistant|>{opening}{{%"
    )
    assert Renderer(tokenizer).begins_reasoning is begins


def test_reasoning_that_never_ended_has_no_pieces(
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    """Its tokens cannot be labelled, so that nothing of it is trained."""
    detokenizer = Detokenizer(tokenizer, thinking=True)
    thought = '<tool_call>{"name": "read", "arguments": {"a": 1}}</tool_call>'

    assert detokenizer.pieces(tokenizer.encode(thought)) is None
    assert detokenizer.pieces(tokenizer.encode(f"{thought}</think>yes")) is not None


@pytest.mark.parametrize("own", [TEMPLATE, "{{ messages[0].content | upper }}"])
def test_text_in_parts_is_the_text(own: str) -> None:
    """Also for a template that knows strings alone."""
    tokenizer = make_tokenizer()
    tokenizer.chat_template = own
    parts = [{"type": "text", "text": "read the "}, {"type": "text", "text": "file"}]
    renderer = Renderer(tokenizer)

    prompt = renderer.render([{"role": "user", "content": parts}, RESULT], TOOLS)
    assert prompt == renderer.render([USER, RESULT], TOOLS)


@pytest.mark.parametrize(
    ("part", "told"),
    [
        ({"type": "image_url", "image_url": {"url": "data:,"}}, "'image_url'"),
        ({"text": "no type"}, "None"),
        ({"type": "text", "text": 3}, "'text'"),
        (3, "int"),
    ],
)
def test_a_part_that_is_no_text_is_refused(
    tokenizer: PreTrainedTokenizerBase, part: Any, told: str
) -> None:
    content = [{"type": "text", "text": "What is in"}, part]

    with pytest.raises(EngineError, match=rf"user.* {told}.*only text"):
        Renderer(tokenizer).render([{"role": "user", "content": content}], [])


def test_a_rewritten_turn_is_tokenised_anew(
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    renderer = Renderer(tokenizer)
    first = renderer.render([SYSTEM, USER], TOOLS, "s")
    renderer.remember("s", first, tokenizer.encode("something else"))
    prompt = renderer.render([SYSTEM, USER, ASSISTANT, RESULT], TOOLS, "s")

    assert prompt.ids == tokenizer.encode(prompt.text, add_special_tokens=False)


def test_a_template_that_refuses_is_an_engine_error() -> None:
    tokenizer = make_tokenizer()
    tokenizer.chat_template = "{{ raise_exception('roles must alternate') }}"

    with pytest.raises(EngineError, match="roles must alternate"):
        Renderer(tokenizer).render([USER], [])


@pytest.mark.parametrize("text", ["read é", "日本 ü", "a<tool_call>b", "", "\n \t"])
def test_pieces_join_to_the_text(tokenizer: PreTrainedTokenizerBase, text: str) -> None:
    ids = [i for c in text for i in tokenizer.encode(c, add_special_tokens=False)]
    pieces = Detokenizer(tokenizer).pieces(ids)

    assert pieces is not None
    assert len(pieces) == len(ids)
    assert "".join(pieces) == text


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


def test_the_work_of_finding_pieces_grows_with_their_number_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tokenizer = make_tokenizer()
    ids = tokenizer.encode("\U0001f600 " + "read the file " * 200)
    decode, lengths = tokenizer.decode, list[int]()

    def counted(ids: list[int], **settings: Any) -> Any:
        lengths.append(len(ids))
        return decode(ids, **settings)

    monkeypatch.setattr(tokenizer, "decode", counted)
    pieces = Detokenizer(tokenizer).pieces(ids)

    assert pieces is not None
    assert "".join(pieces) == decode(ids)
    assert sum(lengths) < 20 * len(ids)
