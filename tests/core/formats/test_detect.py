"""The form of a chat template's calls is found by what the template writes."""

from typing import Any

import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from agentgym.core.formats import FORMATS
from agentgym.core.formats.detect import Render, find_form, keeps_reasoning
from agentgym.errors import ModelError

HEAD = (
    "{% if tools %}{{ tools | tojson }}{% endif %}{% for m in messages %}<{{ m.role }}>"
    "{% if m.tool_calls %}{% for c in m.tool_calls %}{% set f = c.function %}"
)
TAIL = (
    "{% endfor %}{% else %}{{ m.content }}{% endif %}<end>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
ITEMS = "{% for k, v in f.arguments.items() %}"
CALLS = {
    "hermes": '<tool_call>{"name": "{{ f.name }}", "arguments": '
    "{{ f.arguments | tojson }}}</tool_call>",
    "xml": "<tool_call><function={{ f.name }}>" + ITEMS + "<parameter={{ k }}>\n"
    "{{ v }}\n</parameter>{% endfor %}</function></tool_call>",
    "json": '{"name": "{{ f.name }}", "parameters": {{ f.arguments | tojson }}}',
    "harmony": "<|channel|>commentary to=functions.{{ f.name }}<|message|>"
    "{{ f.arguments | tojson }}<|call|>",
    "gemma": "<|tool_call>call:{{ f.name }}{{ '{' }}" + ITEMS + "{{ k }}:"
    '{% if v is string %}<|"|>{{ v }}<|"|>{% else %}{{ v }}{% endif %}'
    "{% if not loop.last %},{% endif %}{% endfor %}{{ '}' }}<tool_call|>",
    "mistral": "[TOOL_CALLS]{{ f.name }}[ARGS]{{ f.arguments | tojson }}",
    "pythonic": "<|tool_call_start|>[{{ f.name }}(" + ITEMS + "{{ k }}="
    "{% if v is string %}'{{ v }}'{% else %}{{ v }}{% endif %}"
    "{% if not loop.last %}, {% endif %}{% endfor %})]<|tool_call_end|>",
}


def renders(template: str) -> Render:
    def fail(message: str) -> None:
        raise ValueError(message)

    environment = ImmutableSandboxedEnvironment()
    environment.globals["raise_exception"] = fail
    compiled = environment.from_string(template)

    def render(messages: list[Any], tools: list[Any], *, prompt: bool) -> str:
        return compiled.render(
            messages=messages, tools=tools, add_generation_prompt=prompt
        )

    return render


@pytest.mark.parametrize("name", list(FORMATS))
def test_each_form_is_found_in_a_template_that_writes_it(name: str) -> None:
    found = find_form("m", renders(HEAD + CALLS[name] + TAIL), FORMATS)

    assert found.format.name == name
    assert found.takes_objects
    assert not found.short_ids
    assert not found.begins_reasoning


def test_arguments_stay_text_where_the_template_writes_text_as_it_is() -> None:
    call = CALLS["hermes"].replace("f.arguments | tojson", "f.arguments")
    assert not find_form("m", renders(HEAD + call + TAIL), FORMATS).takes_objects


def test_open_reasoning_and_short_ids_are_found() -> None:
    tail = TAIL.replace("<assistant>{% endif %}", "<assistant><think>\n{% endif %}")
    ids = "{% if c.id | length != 9 %}{{ raise_exception('nine, please') }}{% endif %}"
    found = find_form("m", renders(HEAD + ids + CALLS["xml"] + tail), FORMATS)

    assert found.begins_reasoning
    assert found.short_ids


def test_a_forced_form_must_read_back_too() -> None:
    render = renders(HEAD + CALLS["hermes"] + TAIL)

    assert find_form("m", render, FORMATS, forced="hermes").format.name == "hermes"
    with pytest.raises(ModelError, match="do not read back as the form 'xml'.*tool_ca"):
        find_form("m", render, FORMATS, forced="xml")


@pytest.mark.parametrize(
    ("template", "said"),
    [
        (
            "{{ raise_exception('no tools') }}",
            r"cannot render a tool call: no tools\. Give",
        ),
        ("{% for m in messages %}{{ m.content }}{% endfor %}", "does not show"),
        (HEAD + TAIL, "leaves out the tool calls"),
        (HEAD + "<call>{{ f }}</call>" + TAIL, "of no known form: '<call>"),
        (HEAD + CALLS["json"] + CALLS["xml"] + TAIL, "in more than one form"),
    ],
)
def test_other_templates_are_refused_with_a_reason(template: str, said: str) -> None:
    with pytest.raises(ModelError, match=said) as raised:
        find_form("some/model", renders(template), FORMATS)
    assert "'some/model'" in str(raised.value)
    assert "chat_template" in str(raised.value) or "tool_format" in str(raised.value)


def test_whether_earlier_reasoning_is_kept_is_found() -> None:
    keeps = (
        "{% for m in messages %}{{ m.reasoning_content }}{{ m.content }}{% endfor %}"
    )
    drops = keeps.replace("{{ m.reasoning_content }}", "{% if loop.last %}"
                          "{{ m.reasoning_content }}{% endif %}")  # fmt: skip

    assert keeps_reasoning(renders(keeps))
    assert not keeps_reasoning(renders(drops))
    assert keeps_reasoning(renders("{{ raise_exception('no') }}"))


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "thinking"])
def test_dropped_reasoning_is_found_under_every_name(field: str) -> None:
    """gpt-oss and LFM2.5 read another field than Qwen3."""
    drops = (
        "{% for m in messages %}{% if loop.last and m." + field + " %}"
        "{{ m." + field + " }}{% endif %}{{ m.content }}{% endfor %}"
    )

    assert not keeps_reasoning(renders(drops))


def test_reasoning_that_is_cut_out_of_the_text_is_found() -> None:
    cuts = (
        "{% for m in messages %}{{ m.content if loop.last else "
        "m.content.split('</think>')[-1] }}{% endfor %}"
    )

    assert keeps_reasoning(renders(cuts))
    assert not keeps_reasoning(renders(cuts), FORMATS["hermes"])


def test_a_template_that_leaves_out_a_second_call_takes_one() -> None:
    first = HEAD.replace("m.tool_calls %}{% set", "m.tool_calls[:1] %}{% set")
    assert find_form("m", renders(first + CALLS["hermes"] + TAIL), FORMATS).one_call
    assert not find_form("m", renders(HEAD + CALLS["hermes"] + TAIL), FORMATS).one_call
