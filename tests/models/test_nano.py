"""The shipped policy: it loads with plain transformers, and its template holds."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agentgym.models.nano import nano_path

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "read_file",
            "description": "Read a file.",
            "parameters": {
                "type": "object",
                "properties": {"path": {"type": "string"}},
                "required": ["path"],
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "list_orders",
            "description": "List orders.\n\nMore text.",
            "parameters": {
                "type": "object",
                "properties": {
                    "limit": {"type": "integer", "default": 5},
                    "state": {"enum": ["open", "done"]},
                    "note": {"anyOf": [{"type": "string"}, {"type": "null"}]},
                },
                "required": ["state"],
            },
        },
    },
]


@pytest.fixture(scope="module")
def tokenizer() -> Any:
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(nano_path())


def render(tokenizer: Any, messages: list[dict[str, Any]], *, ask: bool = False) -> str:
    return str(
        tokenizer.apply_chat_template(
            messages, tools=TOOLS, tokenize=False, add_generation_prompt=ask
        )
    )


def call(name: str, arguments: dict[str, Any] | str) -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": function}],
    }


def test_model_loads_and_generates_with_plain_transformers(tokenizer: Any) -> None:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(nano_path())
    ids = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Read a/b.py."}],
        tools=TOOLS,
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    )["input_ids"]
    out = model.generate(ids, max_new_tokens=40, do_sample=False)
    text = tokenizer.decode(out[0, ids.shape[1] :], skip_special_tokens=True)
    assert text.startswith('<tool_call>{"name": "read_file"')
    assert model.config.eos_token_id == tokenizer.eos_token_id
    assert model.config.vocab_size == len(tokenizer)


def test_tools_are_printed_as_one_line_signatures(tokenizer: Any) -> None:
    text = render(tokenizer, [{"role": "system", "content": "Hi."}])
    assert text == (
        "<|system|>Hi.\nTools:\nread_file(path: str): Read a file.\n"
        "list_orders(limit: int = 5, state: open|done, note: str = null): "
        "List orders.<|end|>"
    )


def test_frameworks_variants_of_a_schema_print_the_same_line(tokenizer: Any) -> None:
    plain = TOOLS[0]
    titled = json.loads(json.dumps(plain))
    titled["function"]["strict"] = True
    parameters = titled["function"]["parameters"]
    parameters |= {"title": "ReadFile", "additionalProperties": False}
    parameters["properties"]["path"] |= {"title": "Path", "description": "A path."}
    messages = [{"role": "user", "content": "x"}]
    first, second = (
        tokenizer.apply_chat_template(messages, tools=[t], tokenize=False)
        for t in (plain, titled)
    )
    assert first == second


def test_arguments_as_text_and_as_object_render_alike(tokenizer: Any) -> None:
    arguments = {"path": "ü/ä.py", "n": 2, "deep": {"a": [1, None, True]}}
    raw = json.dumps(arguments, ensure_ascii=False)
    user = {"role": "user", "content": "x"}
    as_text = render(tokenizer, [user, call("read_file", raw)])
    assert as_text == render(tokenizer, [user, call("read_file", arguments)])
    assert (
        f'<tool_call>{{"name": "read_file", "arguments": {raw}}}</tool_call>' in as_text
    )


def test_tool_call_marks_survive_while_role_marks_do_not(tokenizer: Any) -> None:
    text = render(tokenizer, [call("read_file", {"path": "a"})])
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    kept = tokenizer.decode(ids, skip_special_tokens=True)
    assert "<tool_call>" in kept
    assert "</tool_call>" in kept
    assert "<|assistant|>" not in kept
    assert "<|end|>" not in kept


@pytest.mark.slow
@given(st.text(max_size=200))
@settings(max_examples=200, deadline=None)
def test_any_text_round_trips(tokenizer: Any, text: str) -> None:
    text = text.encode("utf-8", "ignore").decode()
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    assert tokenizer.decode(ids) == text


WORDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
ARGUMENTS = st.dictionaries(WORDS, WORDS | st.integers() | st.none(), max_size=3)
TURNS = st.lists(
    st.tuples(
        st.one_of(WORDS, st.lists(st.tuples(WORDS, ARGUMENTS), min_size=1, max_size=2)),
        WORDS,
    ),
    min_size=1,
    max_size=5,
)


@pytest.mark.slow
@given(WORDS, WORDS, TURNS)
@settings(max_examples=100, deadline=None)
def test_template_is_append_only(
    tokenizer: Any, system: str, user: str, turns: Any
) -> None:
    """A turn's prompt begins with the last turn's prompt and response, exactly."""
    messages: list[dict[str, Any]] = [
        {"role": "system", "content": system},
        {"role": "user", "content": user},
    ]
    for answer, reply in turns:
        prompt = render(tokenizer, messages, ask=True)
        before = tokenizer(prompt, add_special_tokens=False)["input_ids"]
        if isinstance(answer, str):
            response = answer
            messages += [
                {"role": "assistant", "content": answer},
                {"role": "user", "content": reply},
            ]
        else:
            response = ""
            functions = []
            for name, arguments in answer:
                raw = json.dumps(arguments, ensure_ascii=False)
                quoted = json.dumps(name, ensure_ascii=False)
                response += (
                    f'<tool_call>{{"name": {quoted}, "arguments": {raw}}}</tool_call>'
                )
                functions.append({"function": {"name": name, "arguments": arguments}})
            messages.append(
                {"role": "assistant", "content": None, "tool_calls": functions}
            )
            messages.append({"role": "tool", "content": reply})
        after = render(tokenizer, messages, ask=True)
        assert after.startswith(prompt + response + "<|end|>")
        ids = tokenizer(after, add_special_tokens=False)["input_ids"]
        assert ids[: len(before)] == before
