import pytest

from agentgym.engines.local.tool_calls import parse_response

READ = '<tool_call>{"name": "read", "arguments": {"path": "a"}}</tool_call>'


def test_content_and_calls_are_told_apart() -> None:
    content, calls = parse_response(f"Look: {READ}{READ}<|end|>", ["<|end|>"], "k")

    assert content == "Look: "
    assert [(c.name, c.arguments) for c in calls] == [("read", '{"path": "a"}')] * 2


def test_an_answer_keeps_its_exact_text() -> None:
    assert parse_response(" It is done.\n<|end|>", ["<|end|>"], "k") == (
        " It is done.\n",
        [],
    )


def test_a_malformed_call_stays_in_the_content() -> None:
    broken = '<tool_call>{"name": "read", "arguments": {"path</tool_call>'
    content, calls = parse_response(broken + READ, [], "k")

    assert content == broken
    assert len(calls) == 1


@pytest.mark.parametrize(
    "body",
    [
        r'{"name": "\ud800", "arguments": {}}',
        r'{"name": "f", "arguments": "{\"a\": \"\ud83d\"}"}',
    ],
)
def test_a_call_that_no_encoding_holds_stays_in_the_content(body: str) -> None:
    """Half a surrogate pair can be told to nobody: not as JSON, not as UTF-8."""
    text = f"<tool_call>{body}</tool_call>"

    assert parse_response(text, [], "k") == (text, [])


def test_a_pair_of_surrogates_is_a_character() -> None:
    text = r'<tool_call>{"name": "\ud83d\ude00", "arguments": {}}</tool_call>'

    assert parse_response(text, [], "k")[1][0].name == "\U0001f600"


def test_only_calls_leave_no_content() -> None:
    assert parse_response(READ, [], "k")[0] is None


def test_ids_depend_on_key_and_place() -> None:
    ids = [c.id for c in parse_response(READ + READ, [], "k")[1]]

    assert ids == [c.id for c in parse_response(READ + READ, [], "k")[1]]
    assert len(set(ids) | {c.id for c in parse_response(READ, [], "l")[1]}) == 3


def test_arguments_as_a_string_are_unwrapped() -> None:
    text = r'<tool_call>{"name": "f", "arguments": "{\"a\": 1}"}</tool_call>'

    assert parse_response(text, [], "k")[1][0].arguments == '{"a": 1}'


def test_a_call_that_is_only_considered_is_no_call() -> None:
    thought = f"Shall I {READ}? No.\n"

    for text in (f"{thought}</think>\n\nSorry.", f"<think>{thought}</think>Sorry."):
        assert parse_response(text, [], "k") == (text, [])
    assert parse_response(thought + "<|end|>", ["<|end|>"], "k", thinking=True) == (
        thought,
        [],
    )
