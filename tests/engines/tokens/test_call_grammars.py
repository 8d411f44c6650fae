"""Grammars of calls in each form: what they allow, refuse, and let be read back."""

import json
import random
from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import cache, partial
from typing import Any, NamedTuple

import jsonschema
import pytest
from llguidance import LLMatcher
from llguidance.hf import from_tokenizer
from tokenizers.decoders import ByteFallback, ByteLevel, Sequence
from transformers import AutoTokenizer

from agentgym.core.policy import ChatRequest
from agentgym.core.template_settings import TemplateSettings
from agentgym.core.trajectory import Grammar
from agentgym.engines.tokens.grammar import Grammars, closed
from agentgym.errors import GrammarError, ModelError
from agentgym.models.chat_template import ChatTemplate, can_be_constrained
from agentgym.models.nano import nano_path
from tests.core.formats.test_detect import CALLS, HEAD, TAIL
from tests.core.formats.writing import ALL, write

DIGIT = {"type": "integer", "minimum": 0, "maximum": 9}
FIELDS: dict[str, Any] = {
    "text": {"type": "string", "maxLength": 40},
    "short": {"type": "string", "minLength": 2, "maxLength": 3},
    "count": {"type": "integer", "minimum": -3, "maximum": 20},
    "share": {"type": "number", "minimum": 0, "maximum": 9},
    "on": {"type": "boolean"},
    "maybe": {"type": ["boolean", "null"]},
    "mood": {"enum": ["so so", 'it\'s "ill"']},
    "kind": {"$ref": "#/$defs/Kind"},
    "fixed": {"const": "v1"},
    "items": {
        "type": "array",
        "items": {"type": "string", "maxLength": 4},
        "maxItems": 2,
    },
    "more": {
        "type": "object",
        "properties": {
            "a": DIGIT,
            "b": {"type": "array", "items": {"type": "boolean"}, "minItems": 1},
        },
        "required": ["a"],
    },
    "tree": {"$ref": "#/$defs/Tree"},
    "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
    "code": {"type": "string", "pattern": r"^[A-Z]{2}-\d{3}$", "maxLength": 9},
    "day": {"type": "string", "format": "date"},
    "street": {"type": "string", "pattern": "e+t", "maxLength": 30},
    "path": {"type": "string", "pattern": r"^([A-Z]:\\|/)", "maxLength": 20},
}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": FIELDS,
    "required": ["text"],
    "$defs": {
        "Kind": {"enum": ["k1", "k2"]},
        "Tree": {
            "type": "object",
            "properties": {"left": {"$ref": "#/$defs/Tree"}, "value": DIGIT},
            "required": ["value"],
        },
    },
}
EMPTY = {"type": "object", "properties": {}}
TOOLS: list[dict[str, Any]] = [
    {"type": "function", "function": {"name": name, "parameters": schema}}
    for name, schema in (("save", SCHEMA), ("look", EMPTY))
]
LISTED = '[TOOL_CALLS][{"name": "NAME", "arguments": ARGUMENTS}]'


def listed(name: str, arguments: dict[str, Any]) -> str:
    body = json.dumps(arguments, ensure_ascii=False)
    return LISTED.replace("NAME", name).replace("ARGUMENTS", body)


def olmo(name: str, arguments: dict[str, Any]) -> str:
    text = write("pythonic", name, arguments)
    text = text.replace("<|tool_call_start|>", "<function_calls>")
    return text.replace("<|tool_call_end|>", "</function_calls>")


_PYTHON = CALLS["pythonic"].replace("<|tool_call_start|>", "<function_calls>")
SPELLINGS: Mapping[str, tuple[str, Callable[[str, dict[str, Any]], str]]] = {
    **{
        name: (CALLS[name], partial(write, name))
        for name in ("hermes", "xml", "mistral", "pythonic")
    },
    "mistral, as a list": (
        LISTED.replace("NAME", "{{ f.name }}").replace(
            "ARGUMENTS", "{{ f.arguments | tojson }}"
        ),
        listed,
    ),
    "pythonic, in tags": (
        _PYTHON.replace("<|tool_call_end|>", "</function_calls>"),
        olmo,
    ),
}
MARKS = ("[TOOL_CALLS]", "[ARGS]", "<|tool_call_start|>", "<|tool_call_end|>")


class Held(NamedTuple):
    """The grammars of a model whose calls are constrained."""

    tokenizer: Any
    template: ChatTemplate
    grammars: Grammars
    write: Callable[[str, dict[str, Any]], str]
    matchers: dict[str, LLMatcher]

    def grammar(self, *, required: bool, tools: Any = TOOLS) -> Grammar:
        request = ChatRequest(messages=[], tools=tools, wants_call=required)
        found = self.grammars.of(request, "")
        assert found is not None
        return found

    def allows(self, grammar: Grammar, text: str) -> bool:
        """Return whether a text is a whole answer, however it is cut into tokens."""
        if grammar.text not in self.matchers:
            reader = from_tokenizer(self.tokenizer, n_vocab=len(self.tokenizer))
            made = LLMatcher(reader, LLMatcher.grammar_from_lark(grammar.text))
            self.matchers[grammar.text] = made
        matcher = self.matchers[grammar.text].deep_copy()
        ids = self.tokenizer.encode(text, add_special_tokens=False)
        return matcher.try_consume_tokens(ids) == len(ids) and matcher.is_accepting()


@cache
def held(spelling: str, *, special: bool = False) -> Held:
    """Return a model's grammars.

    Args:
        spelling: Of its calls.
        special: Whether the marks of its calls are tokens of their own.
    """
    calls, written = SPELLINGS[spelling]
    tokenizer = AutoTokenizer.from_pretrained(nano_path())
    tokenizer.chat_template = HEAD + calls + TAIL
    if special:
        tokenizer.add_special_tokens({"additional_special_tokens": list(MARKS)})
    template = ChatTemplate("m", tokenizer, TemplateSettings(constrain="calls"))
    made_of_gguf = deepcopy(tokenizer)  # by transformers
    made_of_gguf.backend_tokenizer.decoder = Sequence([ByteFallback(), ByteLevel()])
    grammars = Grammars(
        made_of_gguf,
        template.form,
        frozenset([tokenizer.eos_token_id]),
        len(tokenizer),
        constrains_calls=True,
    )
    return Held(tokenizer, template, grammars, written, {})


GOOD: list[dict[str, Any]] = [
    {"text": "a"},
    {"text": ""},
    {"text": 'it\'s "so"\nok \\ \t é 漢 😀 ,)]}', "short": "abc", "count": -3},
    {"text": "x</parameter>y</tool_call", "share": 2.5, "on": True, "maybe": None},
    {"text": "a", "mood": 'it\'s "ill"', "kind": "k2", "fixed": "v1", "items": []},
    {"text": "a", "items": ["x, y", "z'"], "more": {"a": 1, "b": [True, False]}},
    {"text": "a", "maybe": False, "tree": {"left": {"value": 1}, "value": 2}},
    {"text": "a", "count": 0, "note": "b\n</parameter>, 'c'\n"},
    {"text": "a", "code": "AB-123", "day": "2026-02-28", "street": "Oak street"},
    {"text": "a", "street": "it's a street\n(by the market)", "path": "/x"},
    {"text": "a", "path": "C:\\it's"},
]
BAD: dict[str, tuple[str, dict[str, Any]]] = {
    "unknown tool": ("send", {}),
    "missing argument": ("save", {}),
    "unknown argument": ("save", {"text": "a", "other": 1}),
    "argument of another tool": ("look", {"text": "a"}),
    "text for a number": ("save", {"text": "a", "count": "many"}),
    "fraction for an integer": ("save", {"text": "a", "count": 1.5}),
    "number out of its range": ("save", {"text": "a", "count": 21}),
    "text for a boolean": ("save", {"text": "a", "on": "yes"}),
    "number for null": ("save", {"text": "a", "maybe": 1}),
    "text too long": ("save", {"text": "a", "short": "abcdef"}),
    "text too short": ("save", {"text": "a", "short": "a"}),
    "not of the enum": ("save", {"text": "a", "mood": "good"}),
    "not of the enum by reference": ("save", {"text": "a", "kind": "k3"}),
    "another constant": ("save", {"text": "a", "fixed": "v2"}),
    "items of a wrong type": ("save", {"text": "a", "items": [1]}),
    "too many items": ("save", {"text": "a", "items": ["a", "b", "c"]}),
    "too few items": ("save", {"text": "a", "more": {"a": 1, "b": []}}),
    "missing field": ("save", {"text": "a", "more": {"b": [True]}}),
    "unknown field": ("save", {"text": "a", "more": {"a": 1, "c": 2}}),
    "too long for another rule": ("save", {"text": "a", "street": "et" * 16}),
    "wrong field of a tree": ("save", {"text": "a", "tree": {"value": "x"}}),
}
UNTIDY: Mapping[str, tuple[str, dict[str, Any]]] = {
    "another pattern": ("save", {"text": "a", "code": "AB-12"}),
    "a pattern within another text": ("save", {"text": "a", "code": "xAB-123"}),
    "a text without the pattern": ("save", {"text": "a", "street": "road"}),
    "no day": ("save", {"text": "a", "day": "2026-02-31"}),
    "a word for a day": ("save", {"text": "a", "day": "tomorrow"}),
}
"""Texts that are not as their ``pattern`` or ``format``: JSON's forms refuse them."""
TEXTS = ("code", "day", "street", "path")


def in_json(spelling: str) -> bool:
    return not spelling.startswith(("xml", "pythonic"))


@pytest.mark.parametrize("special", [False, True])
@pytest.mark.parametrize("spelling", SPELLINGS)
def test_calls_by_the_schemas_are_allowed_and_no_others(
    spelling: str, special: bool
) -> None:
    model = held(spelling, special=special)
    for required in (False, True):
        grammar = model.grammar(required=required)
        before, after = ("", "") if required else ("So [a] <b> {c}:\n", "\nDone [d].")
        for given in GOOD:
            text = model.write("save", given)
            assert model.allows(grammar, f"{before}{text}{after}"), text
            [call] = model.template.format.read(text, tools=TOOLS).calls
            assert json.loads(call.arguments or "null") == given
        assert model.allows(grammar, before + model.write("look", {}) + after)
        for why, (name, given) in (BAD | UNTIDY).items():
            text = model.write(name, given)
            is_allowed = why in UNTIDY and not in_json(spelling)
            assert model.allows(grammar, f"{before}{text}{after}") is is_allowed, why
        assert model.allows(grammar, before + after) is not required
        assert not model.allows(grammar, before + model.write("look", {})[:-3])


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_two_calls_of_one_answer_are_allowed(spelling: str) -> None:
    model = held(spelling)
    calls = [model.write("look", {}), model.write("save", {"text": "a"})]
    text = "".join(calls)
    if "[look" in text or '[{"name": "look' in text:  # they share their marks
        end, begin = calls[0].rindex("]"), calls[1].index("[", 1)
        text = f"{calls[0][:end]}, {calls[1][begin + 1 :]}"
    for required in (False, True):
        assert model.allows(model.grammar(required=required), text), text
    found = model.template.format.read(text, tools=TOOLS).calls
    assert [call.name for call in found] == ["look", "save"]
    request = ChatRequest(messages=[], tools=TOOLS, wants_call=True, one_call=True)
    alone = model.grammars.of(request, "")
    assert alone is not None
    assert model.allows(alone, calls[0])
    assert not model.allows(alone, text)


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_whatever_is_allowed_is_read_back_as_a_valid_call(spelling: str) -> None:
    """Answers of tokens drawn by chance, of which texts hold the oddest."""
    model = held(spelling)
    grammar = model.grammar(required=True)
    end = model.tokenizer.eos_token_id
    ended = 0
    for seed in range(12):
        chance = random.Random(seed)
        path, ids = model.grammars.begin(grammar), list[int]()
        while len(ids) < 300 and ids[-1:] != [end]:
            bits = int.from_bytes(path.along(())[0].bits, "little")
            assert not path.failure
            places = [at for at in range(bits.bit_length()) if bits >> at & 1]
            stops = end in places and chance.random() < 0.5
            ids.append(end if stops else chance.choice(places))
            path.advance(ids[-1])
        if ids[-1] != end:
            continue
        ended += 1
        text = model.tokenizer.decode(ids[:-1], skip_special_tokens=False)
        found = model.template.format.read(text, tools=TOOLS)
        assert found.calls, text
        assert not found.content.strip(), text
        for call in found.calls:
            assert call.name in ("save", "look"), text
            schema = closed(SCHEMA if call.name == "save" else EMPTY)
            for name in () if in_json(spelling) else TEXTS:
                schema["properties"].get(name, {}).pop("pattern", None)
            jsonschema.validate(json.loads(call.arguments or "null"), schema)
    assert ended > 1


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_tool_without_a_schema_takes_any_arguments(spelling: str) -> None:
    tools = [{"type": "function", "function": {"name": "run"}}]
    model = held(spelling)
    grammar = model.grammar(required=False, tools=tools)
    assert model.allows(grammar, model.write("run", {"a": "x y", "b": "z"}))
    assert model.allows(grammar, model.write("run", {}))
    assert not model.allows(grammar, model.write("walk", {"a": "x"}))


@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("pattern", ["^(?!no)", r"(a)\1", "^a^", "^[", r"\bx"])
def test_a_pattern_that_no_grammar_expresses_restricts_nothing(
    spelling: str, pattern: str
) -> None:
    properties = {
        "word": {"type": "string", "pattern": pattern},
        "code": {"type": "string", "pattern": "^[a-c]+$"},
    }
    schema = {"type": "object", "properties": properties}
    tools = [{"type": "function", "function": {"name": "f", "parameters": schema}}]
    model = held(spelling)
    grammar = model.grammar(required=True, tools=tools)
    assert model.allows(grammar, model.write("f", {"word": "yes", "code": "abc"}))
    assert not model.allows(grammar, model.write("g", {"word": "yes"}))


@pytest.mark.parametrize("form", ALL)
def test_forms_whose_calls_no_mark_opens_or_no_grammar_has_are_refused(
    form: str,
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(nano_path())
    tokenizer.chat_template = HEAD + CALLS[form] + TAIL
    settings = TemplateSettings(constrain="calls")
    if can_be_constrained(form):
        assert ChatTemplate("m", tokenizer, settings).constrains
        return
    assert form in ("json", "harmony", "gemma")
    named = f"forms hermes, xml, mistral, pythonic, .* in the form '{form}'"
    with pytest.raises(ModelError, match=named):
        ChatTemplate("m", tokenizer, settings)


def test_a_list_of_calls_without_marks_is_refused() -> None:
    tokenizer = AutoTokenizer.from_pretrained(nano_path())
    bare = CALLS["pythonic"].replace("<|tool_call_start|>", "")
    bare = bare.replace("<|tool_call_end|>", "")
    tokenizer.chat_template = HEAD + bare + TAIL.replace("<end>", "")
    with pytest.raises(ModelError, match=r"where a mark opens them.*\[probe_tool\("):
        ChatTemplate("m", tokenizer, TemplateSettings(constrain="calls"))


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_schema_of_an_answer_needs_arguments_in_json(spelling: str) -> None:
    model = held(spelling)
    request = ChatRequest(
        messages=[], tools=TOOLS[:1], form="save", wants_call=True, one_call=True
    )
    if not in_json(spelling):
        with pytest.raises(GrammarError, match="forms hermes, json and mistral only"):
            model.grammars.of(request, "")
        return
    found = model.grammars.of(request, "")
    assert found is not None
    assert model.allows(found, model.write("save", GOOD[0]))
    assert not model.allows(found, model.write("save", {}))
