"""Rendering: the template's own text, and the sampled ids turn after turn."""

from typing import Any

import pytest
from transformers import PreTrainedTokenizerBase

from agentgym.engines.local.rendering import Renderer
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
    head = tokenizer.decode(prompts[0].ids[: prompts[0].head])
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
    renderer.remember("s", first, sampled, tokenizer.decode(sampled))

    known = renderer.render([SYSTEM, USER, ASSISTANT, RESULT], TOOLS, "s")
    unknown = renderer.render([SYSTEM, USER, ASSISTANT, RESULT], TOOLS, "other")

    assert known.ids[: len(first.ids) + len(sampled)] == first.ids + sampled
    assert known.ids != unknown.ids
    assert known.text == unknown.text == tokenizer.decode(known.ids)


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
    renderer.remember("s", first, sampled, said)
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
    renderer.remember("s", first, tokenizer.encode("something else"), "something else")
    prompt = renderer.render([SYSTEM, USER, ASSISTANT, RESULT], TOOLS, "s")

    assert prompt.ids == tokenizer.encode(prompt.text, add_special_tokens=False)


def test_a_template_that_refuses_is_an_engine_error() -> None:
    tokenizer = make_tokenizer()
    tokenizer.chat_template = "{{ raise_exception('roles must alternate') }}"

    with pytest.raises(EngineError, match="roles must alternate"):
        Renderer(tokenizer).render([USER], [])
