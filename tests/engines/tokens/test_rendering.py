"""Rendering: the template's own text, and the sampled ids turn after turn."""

import re
from typing import Any

import pytest
from transformers import PreTrainedTokenizerBase

from agentgym.core.formats import FORMATS
from agentgym.core.template_settings import TemplateSettings
from agentgym.engines.tokens.rendering import Prompt, Renderer
from agentgym.errors import EngineError
from agentgym.models.chat_template import ChatTemplate
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


END = "<|end|>"


def renderer_of(tokenizer: PreTrainedTokenizerBase, **settings: Any) -> Renderer:
    template = ChatTemplate("m", tokenizer, TemplateSettings(**settings))
    return Renderer(tokenizer, template, [END])


def with_template(template: str) -> tuple[PreTrainedTokenizerBase, Renderer]:
    """Return a tokenizer whose template changed after it was looked at."""
    tokenizer = make_tokenizer()
    renderer = renderer_of(tokenizer)
    tokenizer.chat_template = template
    return tokenizer, renderer


def remember(
    renderer: Renderer,
    session: str,
    prompt: Prompt,
    answer: dict[str, Any],
    ids: list[int],
    text: str,
    asked: list[dict[str, Any]],
) -> None:
    end = END if text.endswith(END) else ""
    reading = FORMATS["hermes"].read(text, prefix=prompt.end, end=end)
    renderer.remember(
        session, asked, TOOLS, prompt, answer, ids, reading=reading, end=end
    )


def text_of(tokenizer: PreTrainedTokenizerBase, prompt: Prompt) -> str:
    return str(tokenizer.decode(prompt.ids))


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
    renderer = renderer_of(tokenizer)
    for _ in range(2):  # the second time from what is kept
        prompt = renderer.render(messages, tools)
        text = template(tokenizer, messages, tools)
        assert prompt.ids == tokenizer.encode(text, add_special_tokens=False)
        assert text.endswith(prompt.end)


def test_the_head_is_system_prompt_and_tools(
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    renderer = renderer_of(tokenizer)
    prompts = [renderer.render([SYSTEM, m], TOOLS) for m in (USER, RESULT)]

    assert prompts[0].ids[: prompts[0].head] == prompts[1].ids[: prompts[1].head]
    head = tokenizer.decode(prompts[0].ids[: prompts[0].head])
    assert head.startswith("<|system|>Be brief.")
    assert head.endswith("<|end|>")
    assert "read(path)" in head


def test_a_template_that_mixes_tools_into_messages_is_rendered_as_a_whole() -> None:
    tokenizer, renderer = with_template(
        "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}"
        "{% if tools and m.role == 'user' %}{{ tools | length }}{% endif %}"
        "{% endfor %}"
    )
    prompt = renderer.render([SYSTEM, USER], TOOLS)

    assert text_of(tokenizer, prompt) == template(tokenizer, [SYSTEM, USER], TOOLS)
    assert text_of(tokenizer, prompt).endswith("file3")
    assert prompt.head == 0


SAID = '<tool_call>{"name": "read", "arguments": {"a": 1}}</tool_call><|end|>'


def letters(tokenizer: PreTrainedTokenizerBase, text: str) -> list[int]:
    """Return a text's tokens as no tokenizer would choose them."""
    text, end = text.removesuffix(END), text.endswith(END)
    ids = [i for c in text for i in tokenizer.encode(c, add_special_tokens=False)]
    return ids + tokenizer.encode(END, add_special_tokens=False) * end


@pytest.mark.parametrize(
    "spelled",
    [SAID, SAID.replace('"a": 1', '"a"  :1'), SAID.replace("<tool", "So: <tool")],
)
def test_the_next_turn_goes_on_from_the_sampled_ids(
    tokenizer: PreTrainedTokenizerBase, spelled: str
) -> None:
    """However odd their spelling: frameworks send the arguments back as they like."""
    renderer = renderer_of(tokenizer)
    first = renderer.render([SYSTEM, USER], TOOLS, "s")
    sampled = letters(tokenizer, spelled)
    answer = {**ASSISTANT, "content": spelled.partition("<")[0]}
    remember(renderer, "s", first, answer, sampled, spelled, [SYSTEM, USER])

    again = {**answer, "name": "x", "content": answer["content"].strip() or None}
    known = renderer.render([SYSTEM, USER, again, RESULT], TOOLS, "s")
    unknown = renderer.render([SYSTEM, USER, answer, RESULT], TOOLS, "other")

    before = first.ids + sampled
    assert known.ids[: len(before)] == before
    assert known.ids != unknown.ids
    added = tokenizer.decode(known.ids[len(before) :])
    assert text_of(tokenizer, unknown).endswith(added)
    assert added.count("found") == 1
    assert known.head == first.head


def test_an_answer_that_a_limit_cut_is_ended_in_the_prompt(
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    renderer = renderer_of(tokenizer)
    first = renderer.render([USER], TOOLS, "s")
    sampled = letters(tokenizer, "read the")
    answer = {"role": "assistant", "content": "read the"}
    remember(renderer, "s", first, answer, sampled, "read the", [USER])
    second = renderer.render([USER, answer, USER], TOOLS, "s")

    before = first.ids + sampled
    assert second.ids[: len(before)] == before
    added = tokenizer.decode(second.ids[len(before) :])
    assert added == "<|end|><|user|>read the file<|end|><|assistant|>"


def test_earlier_reasoning_that_the_template_drops_begins_a_new_branch() -> None:
    tokenizer = make_tokenizer()
    shown = "{%- if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>"
    drops = TEMPLATE.replace(
        "{{ m.content or '' }}",
        shown.replace("if m.", "if loop.last and m.") + "{%- endif %}"
        "{{ m.content or '' }}",
    )
    keeps = TEMPLATE.replace(
        "{{ m.content or '' }}", shown + "{%- endif %}{{ m.content or '' }}"
    )
    for own, continues in ((drops, False), (keeps, True)):
        tokenizer.chat_template = own
        renderer = renderer_of(tokenizer)
        first = renderer.render([USER], TOOLS, "s")
        said = f"<think>so</think>{SAID}"
        sampled = tokenizer.encode(said, add_special_tokens=False)
        remember(renderer, "s", first, ASSISTANT, sampled, said, [USER])
        before = first.ids + sampled

        results = renderer.render([USER, ASSISTANT, RESULT], TOOLS, "s")
        assert results.ids[: len(before)] == before
        spoken = renderer.render([USER, ASSISTANT, RESULT, USER], TOOLS, "s")
        assert (spoken.ids[: len(before)] == before) is continues


def test_a_template_that_writes_arguments_as_json_is_given_the_object() -> None:
    """Else it would quote them a second time."""
    tokenizer = make_tokenizer()
    tokenizer.chat_template = TEMPLATE.replace(
        VERBATIM, "c.function.arguments | tojson"
    )
    prompt = renderer_of(tokenizer).render([SYSTEM, USER, ASSISTANT, RESULT], TOOLS)
    expected = template(tokenizer, [SYSTEM, USER, PARSED, RESULT], TOOLS)

    assert text_of(tokenizer, prompt) == expected


def test_a_template_that_takes_only_short_ids_is_given_them() -> None:
    tokenizer = make_tokenizer()
    tokenizer.chat_template = TEMPLATE.replace(
        "{%- for c in m.tool_calls or [] -%}",
        "{%- for c in m.tool_calls or [] -%}{% if c.id | length != 9 %}"
        "{{ raise_exception('nine') }}{% endif %}",
    ).replace(
        "{{ m.content or '' }}",
        "{% if m.tool_call_id %}[{{ m.tool_call_id }}]{% endif %}{{ m.content or '' }}",
    )
    prompt = renderer_of(tokenizer).render([USER, ASSISTANT, RESULT], TOOLS)

    assert re.search(r"\[[0-9a-f]{9}\]é found", text_of(tokenizer, prompt))


@pytest.mark.parametrize("written", ['{"a":1,  "b": 2}', "no json", '{"a": 1', "[1]"])
def test_arguments_that_a_template_writes_as_they_are_stay_so(
    tokenizer: PreTrainedTokenizerBase, written: str
) -> None:
    call = {"id": "1", "function": {"name": "read", "arguments": written}}
    asked = [USER, {**ASSISTANT, "tool_calls": [call]}, RESULT]

    prompt = renderer_of(tokenizer).render(asked, TOOLS)
    assert f'"arguments": {written}}}</tool_call>' in text_of(tokenizer, prompt)


def test_text_in_parts_is_the_text() -> None:
    """Also for a template that knows strings alone."""
    parts = [{"type": "text", "text": "read the "}, {"type": "text", "text": "file"}]
    for own in (TEMPLATE, "{{ messages[0].content | upper }}"):
        _, renderer = with_template(own)
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
def test_a_part_that_is_not_text_is_refused(
    tokenizer: PreTrainedTokenizerBase, part: Any, told: str
) -> None:
    content = [{"type": "text", "text": "What is in"}, part]

    with pytest.raises(EngineError, match=rf"user.* {told}.*only text"):
        renderer_of(tokenizer).render([{"role": "user", "content": content}], [])


def test_a_rewritten_turn_is_tokenised_anew(tokenizer: PreTrainedTokenizerBase) -> None:
    renderer = renderer_of(tokenizer)
    first = renderer.render([SYSTEM, USER], TOOLS, "s")
    other = {"role": "assistant", "content": "something else"}
    ids = tokenizer.encode("something else")
    remember(renderer, "s", first, other, ids, "something else", [SYSTEM, USER])
    asked = [SYSTEM, USER, ASSISTANT, RESULT]
    prompt = renderer.render(asked, TOOLS, "s")

    text = template(tokenizer, asked, TOOLS)
    assert prompt.ids == tokenizer.encode(text, add_special_tokens=False)


def test_a_template_that_refuses_is_an_engine_error() -> None:
    _, renderer = with_template("{{ raise_exception('roles must alternate') }}")

    with pytest.raises(EngineError, match="roles must alternate"):
        renderer.render([USER], [])


def test_a_template_that_writes_its_last_answer_in_another_way_is_continued() -> None:
    """Qwen3's puts empty reasoning before the last answer alone."""
    tokenizer = make_tokenizer()
    tokenizer.chat_template = TEMPLATE.replace(
        "{{ m.content or '' }}",
        "{% if loop.last and m.role == 'assistant' %}<think></think>{% endif %}"
        "{{ m.content or '' }}",
    )
    renderer = renderer_of(tokenizer)
    asked: list[dict[str, Any]] = [SYSTEM, USER]
    for more in ([RESULT], [RESULT, USER]):
        prompt = renderer.render(asked, TOOLS, "s")
        sampled = letters(tokenizer, SAID)
        remember(renderer, "s", prompt, ASSISTANT, sampled, SAID, asked)
        asked = [*asked, ASSISTANT, *more]
        kept = renderer.render(asked, TOOLS, "s")
        assert kept.ids[: len(prompt.ids + sampled)] == prompt.ids + sampled


def test_an_answer_to_a_prompt_that_opens_reasoning_closes_it_at_once() -> None:
    """Nemotron's prompts have an empty line there which its earlier turns do not."""
    tokenizer = make_tokenizer()
    tokenizer.chat_template = TEMPLATE.replace(
        "{{ m.content or '' }}",
        "{% if m.role == 'assistant' %}<think></think>{% endif %}{{ m.content or '' }}",
    ).replace("<|assistant|>{%- endif", "<|assistant|>{{ '<think>\n' }}{%- endif")
    ids = renderer_of(tokenizer).answer([USER], {"role": "assistant", "content": "a"})

    assert tokenizer.decode(ids) == f"</think>a{END}"


def test_the_newer_of_two_answers_to_one_request_is_continued(
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    renderer = renderer_of(tokenizer)
    prompt = renderer.render([USER], TOOLS, "s")
    newer = tokenizer.encode(SAID, add_special_tokens=False)
    for sampled in (letters(tokenizer, SAID), newer):
        remember(renderer, "s", prompt, ASSISTANT, sampled, SAID, [USER])
    kept = renderer.render([USER, ASSISTANT, RESULT], TOOLS, "s")

    assert kept.ids[: len(prompt.ids + newer)] == prompt.ids + newer


def test_what_templates_fail_on_is_filled_in() -> None:
    """Content that is null, and tools without a description."""
    tokenizer = make_tokenizer()
    strict = (
        "{% for t in tools or [] %}{{ t.function.description + '' }}{% endfor %}"
        "{% for m in messages %}{{ m.content + '' }}{% endfor %}"
    )
    tokenizer.chat_template = strict + TEMPLATE
    tool = {"type": "function", "function": {"name": "read", "parameters": {}}}
    prompt = renderer_of(tokenizer).render([USER, ASSISTANT, RESULT], [tool])

    assert "found" in text_of(tokenizer, prompt)
