"""A small tokenizer with the marks of known families: `renderers` reads the same."""

import json
from typing import Any

import pytest
import renderers
from tokenizers import AddedToken
from transformers import PreTrainedTokenizerBase

from agentgym.core.formats import FORMATS
from agentgym.core.policy import ChatRequest
from agentgym.core.trajectory import RequestedCall
from agentgym.engines.tokens.chat_tokens import ChatTokens
from agentgym.errors import EngineError
from agentgym.models.chat_template import ChatTemplate
from agentgym.models.template import template_text
from tests.core.formats.writing import TOOL, write
from tests.engines.conftest import make_tokenizer

MARKS = """
<|im_start|> <|im_end|> <|endoftext|> <tool_response> </tool_response> <think>
</think> <|vision_start|> <|vision_end|> <|image_pad|> <|video_pad|> <bos> <eos>
<|turn> <turn|> <|channel> <channel|> <|think|> <|tool> <tool|> <|tool_call>
<tool_call|> <|tool_response> <tool_response|> <|"|> <|image> <|image|> <image|>
<|begin_of_text|> <|start_header_id|> <|end_header_id|> <|eot_id|> <|end_of_text|>
<|eom_id|>
"""
ARGUMENTS = {"text": 'it\'s "odd" <b>', "count": -3, "on": True, "items": ["a", "b c"]}


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerBase:
    made = make_tokenizer()
    made.add_tokens([AddedToken(t, special=True) for t in MARKS.split()])
    made.eos_token = "<|im_end|>"
    made.chat_template = template_text("hermes")
    return made


def renderer_of(name: str, tokenizer: PreTrainedTokenizerBase) -> Any:
    return renderers.create_renderer(tokenizer, renderers.config_from_name(name))


@pytest.mark.parametrize(
    ("form", "name", "end"),
    [
        ("hermes", "qwen3", "<|im_end|>"),
        ("xml", "qwen3.5", "<|im_end|>"),
        ("xml", "nemotron-3", "<|im_end|>"),
        ("json", "llama-3", "<|eot_id|>"),
        ("gemma", "gemma4", "<turn|>"),
    ],
)
def test_an_answer_is_read_as_the_oracle_reads_it(
    form: str, name: str, end: str, tokenizer: PreTrainedTokenizerBase
) -> None:
    text = write(form, "save", ARGUMENTS)
    ids = tokenizer.encode(text + end, add_special_tokens=False)
    parsed = renderer_of(name, tokenizer).parse_response(ids, tools=[TOOL])

    [theirs] = parsed.tool_calls
    [ours] = FORMATS[form].read(text + end, tools=[TOOL], end=end).calls
    assert ours.name == theirs.name
    given = theirs.arguments
    given = json.loads(given) if isinstance(given, str) else given
    assert json.loads(ours.arguments or "") == given == ARGUMENTS


def test_the_next_turn_is_bridged_as_by_the_oracle(
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    """Also where the answer is spelled as no template would, or a limit cut it."""
    oracle = renderer_of("qwen3", tokenizer)
    ends = frozenset(tokenizer.convert_tokens_to_ids(["<|im_end|>"]))
    template = ChatTemplate("m", tokenizer)
    written = '<tool_call>{"name":"save",  "arguments": {"text" :"a"}}</tool_call>'
    for number, text in enumerate([f"{written}<|im_end|>", "read the"]):
        tokens = ChatTokens("m", tokenizer, template, ends, 10_000)
        asked: list[dict[str, Any]] = [{"role": "user", "content": "read"}]
        request = ChatRequest(asked, [TOOL], session="s")
        prompt, _ = tokens.prompt(request)
        ids = tokenizer.encode(text, add_special_tokens=False)
        answer = tokens.result(
            request, prompt, ids, [0.0] * len(ids), reason="stop", version=0
        )
        calls = [call.to_openai() for call in answer.tool_calls]
        more: dict[str, Any] = {"tool_calls": calls} if calls else {}
        said = {"role": "assistant", "content": answer.content, **more}
        result = {"role": "tool", "tool_call_id": "x", "content": "é"}
        new = [result] if not number else [{"role": "user", "content": "go on"}]
        ours = tokens.prompt(ChatRequest([*asked, said, *new], [TOOL], session="s"))
        if number:  # the oracle renders what a user says anew, as its default
            config = renderers.config_from_name("qwen3")
            config = config.model_copy(update={"thinking_retention": "all"})
            oracle = renderers.create_renderer(tokenizer, config)
        bridged = oracle.bridge_to_next_turn(prompt.ids, ids, new, tools=[TOOL])

        assert bridged is not None
        assert ours[0].ids == list(bridged.token_ids)


def test_calls_of_one_answer_have_a_turn_each_where_a_template_takes_one(
    tokenizer: PreTrainedTokenizerBase,
) -> None:
    refuses = (
        "{% for m in messages %}{% if m.tool_calls and m.tool_calls | length > 1 %}"
        "{{ raise_exception('one call, please') }}{% endif %}{% endfor %}"
    )
    usual = template_text("hermes")
    tokenizer.chat_template = refuses + usual
    one = ChatTemplate("m", tokenizer)
    tokenizer.chat_template = usual
    assert one.form.one_call
    assert not ChatTemplate("m", tokenizer).form.one_call
    tokenizer.chat_template = refuses + usual
    ends = frozenset(tokenizer.convert_tokens_to_ids(["<|im_end|>"]))
    tokens = ChatTokens("m", tokenizer, one, ends, 10_000)
    asked: list[dict[str, Any]] = [{"role": "user", "content": "read"}]
    request = ChatRequest(asked, [TOOL], session="s", max_tokens=4000)
    calls = [
        RequestedCall(id=f"c{n}", name="save", arguments=f'{{"count": {n}}}')
        for n in range(2)
    ]
    prompt, _ = tokens.prompt(request)
    text = "\n".join(write("hermes", "save", {"count": n}) for n in range(2))
    ids = tokenizer.encode(f"{text}<|im_end|>", add_special_tokens=False)
    answer = tokens.result(
        request, prompt, ids, [0.0] * len(ids), reason="stop", version=0
    )
    calls = answer.tool_calls
    said: dict[str, Any] = {"role": "assistant", "content": None}
    said |= {"tool_calls": [call.to_openai() for call in calls]}
    results = [
        {"role": "tool", "tool_call_id": call.id, "content": f"done {call.id}"}
        for call in calls
    ]
    later = ChatRequest([*asked, said, *results], [TOOL], session="s")
    kept = tokens.prompt(later)[0].ids
    anew = tokens.prompt(ChatRequest(later.messages, [TOOL], session="other"))[0].ids

    assert kept[: len(prompt.ids + ids)] == prompt.ids + ids
    for whole in (kept, anew):
        shown = str(tokenizer.decode(whole))
        places = [shown.index(f"done {call.id}") for call in calls]
        assert places == sorted(places)
    shown = str(tokenizer.decode(anew))
    assert shown.index(f"done {calls[0].id}") < shown.index('{"count": 1}')


def test_a_template_whose_answers_do_not_end_is_said_before_time_is_spent(
    tokenizer: PreTrainedTokenizerBase, caplog: pytest.LogCaptureFixture
) -> None:
    def tokens(template: str) -> ChatTokens:
        tokenizer.chat_template = template
        ends = frozenset(tokenizer.convert_tokens_to_ids(["<|im_end|>"]))
        made = ChatTemplate("m", tokenizer)
        return ChatTokens("m", tokenizer, made, ends, 10_000)

    usual = template_text("hermes")
    tokens(usual).check_ends(imitates=True)
    assert not caplog.records
    other = tokens(usual.replace('eos_token or "<|im_end|>"', '"<|bye|>"'))
    other.check_ends(imitates=False)
    assert "<|bye|>" in caplog.text
    assert "<|im_end|>" in caplog.text
    with pytest.raises(EngineError, match="warm start cannot work"):
        other.check_ends(imitates=True)
    ending = "{%- endfor -%}\n{{ end }}\n{% endif -%}"
    assert usual.count(ending) == 1
    bare = tokens(usual.replace(ending, "{%- endfor -%}{%- endif -%}"))
    with pytest.raises(EngineError, match="ends an answer of 'm' with nothing"):
        bare.check_ends(imitates=True)
    tokenizer.chat_template = usual
