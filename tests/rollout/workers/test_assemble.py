"""Joining what the model asked for with what the tools saw."""

import pytest

from agentgym.core.tools import ToolOutcome, spec_of
from agentgym.core.trajectory import ModelCall, RequestedCall, Step, ToolCall
from agentgym.rollout.workers.assemble import NOT_RUN, assemble_steps


def read_file(path: str) -> str:
    """Read a file."""
    return path


SPECS = {"read_file": spec_of(read_file)}


def asked(*calls: tuple[str, str, str]) -> ModelCall:
    return ModelCall(
        tools=[spec.to_openai() for spec in SPECS.values()],
        tool_calls=[RequestedCall(id=i, name=n, arguments=a) for i, n, a in calls],
    )


def ran(path: str, call_id: str | None = None) -> ToolCall:
    return ToolCall(id=call_id, name="read_file", arguments={"path": path}, result=path)


def test_calls_join_by_order_where_the_framework_hides_ids() -> None:
    calls = [
        asked(("1", "read_file", '{"path": "a"}')),
        asked(("2", "read_file", '{"path": "b"}')),
    ]
    steps = assemble_steps(calls, [ran("a"), ran("b")], SPECS)
    assert [type(s).__name__ for s in steps] == ["ModelCall", "ToolCall"] * 2
    found = [s for s in steps if isinstance(s, ToolCall)]
    assert [(s.id, s.result) for s in found] == [("1", "a"), ("2", "b")]


def test_calls_join_by_id_where_parallel_calls_finish_out_of_order() -> None:
    call = asked(
        ("1", "read_file", '{"path": "a"}'), ("2", "read_file", '{"path": "b"}')
    )
    steps = assemble_steps([call], [ran("b", "2"), ran("a", "1")], SPECS)
    found = [s for s in steps if isinstance(s, ToolCall)]
    assert [(s.id, s.result) for s in found] == [("1", "a"), ("2", "b")]


def test_calls_that_the_framework_rejected_are_judged_by_what_was_written() -> None:
    call = asked(
        ("1", "open_file", "{}"), ("2", "read_file", "{"), ("3", "read_file", "{}")
    )
    steps = assemble_steps([call], [], SPECS)
    assert [s.outcome for s in steps if isinstance(s, ToolCall)] == [
        ToolOutcome.UNKNOWN_TOOL,
        ToolOutcome.MALFORMED,
        ToolOutcome.INVALID_ARGUMENTS,
    ]


def test_a_valid_call_that_never_ran_does_not_count_as_reliable() -> None:
    steps = assemble_steps([asked(("1", "read_file", '{"path": "a"}'))], [], SPECS)
    [_, outcome] = steps
    assert isinstance(outcome, ToolCall)
    assert outcome.outcome is ToolOutcome.RAISED
    assert NOT_RUN in outcome.result


def test_calls_made_by_the_agents_own_code_are_kept() -> None:
    steps = assemble_steps([ModelCall(content="hi")], [ran("a")], SPECS)
    assert len(steps) == 2


def test_a_rejected_call_does_not_take_the_outcome_of_a_later_one() -> None:
    calls = [
        asked(("1", "read_file", '{"file": "a"}')),
        asked(("2", "read_file", '{"path": "a"}')),
    ]
    steps = assemble_steps(calls, [ran("a")], SPECS)
    assert [s.outcome for s in steps if isinstance(s, ToolCall)] == [
        ToolOutcome.INVALID_ARGUMENTS,
        ToolOutcome.OK,
    ]


HAND_OFF = {
    "name": "transfer_to_b",
    "parameters": {
        "type": "object",
        "properties": {"why": {"type": "string"}, "times": {"type": "integer"}},
        "required": ["why"],
        "additionalProperties": False,
    },
}


def outcomes(steps: list[Step]) -> list[ToolOutcome]:
    return [step.outcome for step in steps if isinstance(step, ToolCall)]


@pytest.mark.parametrize(
    ("arguments", "outcome"),
    [
        ('{"why": "x"}', ToolOutcome.OK),
        ('{"why": "x", "times": "2"}', ToolOutcome.OK),  # as pydantic's lax mode
        ("{", ToolOutcome.MALFORMED),
        ("[]", ToolOutcome.MALFORMED),
        ("{}", ToolOutcome.INVALID_ARGUMENTS),
        ('{"why": 3}', ToolOutcome.INVALID_ARGUMENTS),
        ('{"why": "x", "times": "often"}', ToolOutcome.INVALID_ARGUMENTS),
        ('{"why": "x", "who": "b"}', ToolOutcome.INVALID_ARGUMENTS),
    ],
)
def test_a_call_of_a_tool_that_the_agent_brought_is_judged_by_its_schema(
    arguments: str, outcome: ToolOutcome
) -> None:
    call = asked(("1", "transfer_to_b", arguments))
    offered = [{"type": "function", "function": HAND_OFF}]
    told = call.model_copy(update={"tools": offered})
    assert outcomes(assemble_steps([told], [], SPECS)) == [outcome]
    unknown = [ToolOutcome.UNKNOWN_TOOL]
    assert outcomes(assemble_steps([call], [], SPECS)) == unknown


@pytest.mark.parametrize(
    "parameters",
    [
        None,
        "anything",
        {"type": "nonsense"},
        {"properties": []},
        {"$ref": "#"},
        {"$ref": "http://127.0.0.1:9/schema"},  # nothing is fetched
    ],
)
def test_a_schema_that_is_none_finds_no_fault(parameters: object) -> None:
    function = {"name": "transfer_to_b", "parameters": parameters}
    odd = [{"type": "function", "function": function}, "no tool", {"function": 3}]
    call = ModelCall.model_construct(
        tools=odd,
        tool_calls=[RequestedCall(id="1", name="transfer_to_b", arguments="{}")],
    )
    assert outcomes(assemble_steps([call], [], SPECS)) == [ToolOutcome.OK]


@pytest.mark.parametrize("call_id", ["1", "2", None])
def test_a_tool_that_a_call_was_not_offered_takes_no_outcome_of_another(
    call_id: str | None,
) -> None:
    mine = asked(("2", "read_file", '{"path": "a"}'))
    unoffered = asked(("1", "read_file", '{"path": "a"}'))
    unoffered = unoffered.model_copy(update={"tools": []})
    steps = assemble_steps([unoffered, mine], [ran("a", call_id)], SPECS)
    if call_id == "1":  # and somebody ran it all the same: it counts once
        mended = [ToolOutcome.UNKNOWN_TOOL, ToolOutcome.RAISED]
    else:
        mended = [ToolOutcome.UNKNOWN_TOOL, ToolOutcome.OK]
    assert outcomes(steps) == mended


def test_ids_that_two_of_a_team_have_given_are_told_apart_by_the_tool() -> None:
    first = asked(("1", "open_file", "{}"))
    steps = assemble_steps(
        [first, asked(("1", "read_file", '{"path": "a"}'))], [ran("a", "1")], SPECS
    )
    assert outcomes(steps) == [ToolOutcome.UNKNOWN_TOOL, ToolOutcome.OK]


def test_a_call_that_the_agents_own_code_replaces_is_left_out() -> None:
    first = asked(("1", "read_file", '{"path": "a"}'))
    second = asked(("2", "read_file", '{"path": "b"}'))
    after = ModelCall(
        messages=[
            {"role": "assistant", "tool_calls": [{"id": "2"}]},
            {"role": "tool", "tool_call_id": "2", "content": "b"},
        ]
    )
    steps = assemble_steps([first, second, after], [ran("b", "2")], SPECS)
    assert [s.id for s in steps if isinstance(s, ToolCall)] == ["2"]
    # One that a later request shows was answered past training.
    after.messages[1]["tool_call_id"] = "1"
    steps = assemble_steps([first, second, after], [ran("b", "2")], SPECS)
    found = [s for s in steps if isinstance(s, ToolCall)]
    assert [(s.id, s.outcome) for s in found] == [
        ("1", ToolOutcome.RAISED),
        ("2", ToolOutcome.OK),
    ]
    # So was one whose tool has never run, and one that ended the episode.
    for calls in ([first, ModelCall()], [second, first]):
        steps = assemble_steps(calls, [ran("b", "2")][: calls[0] is second], SPECS)
        found = [s for s in steps if isinstance(s, ToolCall)]
        assert ToolOutcome.RAISED in {s.outcome for s in found}
