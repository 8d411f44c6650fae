"""The continuity check names the call and the message where context was lost."""

from copy import deepcopy
from typing import Any

import pytest

from agentgym.core.trajectory import ModelCall, RequestedCall, Trajectory
from agentgym.plugins.collect.continuity import LossKind, check_continuity

SYSTEM = {"role": "system", "content": "Be kind."}
USER = {"role": "user", "content": "What is 2 + 2?"}
ASKED = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"id": "c1", "function": {"name": "add", "arguments": '{"a": 2, "b": 2}'}}
    ],
}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "4"}
SAID = {"role": "assistant", "content": "It is 4."}
THANKS = {"role": "user", "content": "And 3 + 3?"}

Messages = list[dict[str, Any]]


def conversation(*prompts: Messages) -> Trajectory:
    """Return a trajectory whose replies are ASKED, then SAID."""
    call = RequestedCall(id="c1", name="add", arguments='{"a":2,"b":2}')
    replies: list[dict[str, Any]] = [
        {"tool_calls": [call]},
        {"content": "It is 4."},
        {"content": "6"},
    ]
    steps = [
        ModelCall(messages=deepcopy(prompt), **reply)
        for prompt, reply in zip(prompts, replies, strict=False)
    ]
    return Trajectory(rollout_id="r", scenario="", task_id="t", steps=steps)


WHOLE = [
    [SYSTEM, USER],
    [SYSTEM, USER, ASKED, RESULT],
    [SYSTEM, USER, ASKED, RESULT, SAID, THANKS],
]


def test_whole_conversation_has_no_loss() -> None:
    assert check_continuity(conversation(*WHOLE)) == []


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        ([SYSTEM, ASKED, RESULT, SAID, THANKS], [(1, "missing")]),
        ([{**SYSTEM, "content": "Be rude."}, *WHOLE[2][1:]], [(0, "system_changed")]),
        ([SYSTEM, {**USER, "content": "What?"}, *WHOLE[2][2:]], [(1, "altered")]),
        ([SYSTEM, USER, ASKED, RESULT, THANKS], [(4, "missing")]),
        ([*WHOLE[1], {**SAID, "content": "5"}, THANKS], [(4, "altered")]),
        (
            [SYSTEM, USER, RESULT, SAID, THANKS],
            [(2, "result_without_call"), (2, "missing")],
        ),
        ([THANKS, *WHOLE[2]], [(0, "inserted")]),
    ],
    ids=[
        "forgot the user",
        "changed the system prompt",
        "altered the user",
        "forgot its reply",
        "altered its reply",
        "a result without its call",
        "put a message first",
    ],
)
def test_each_loss_is_named(
    last: Messages, expected: list[tuple[int, LossKind]]
) -> None:
    losses = check_continuity(conversation(*WHOLE[:2], last))
    assert [(loss.message, loss.kind) for loss in losses] == expected
    assert {loss.call for loss in losses} == {2}


def test_tool_result_that_was_left_out_is_named() -> None:
    (loss,) = check_continuity(conversation([SYSTEM, USER], [SYSTEM, USER, ASKED]))
    assert (loss.call, loss.kind) == (1, "result_missing")
    assert "'c1'" in str(loss)


def test_arguments_may_be_written_differently() -> None:
    again = deepcopy(WHOLE[1])
    again[2]["tool_calls"][0]["function"]["arguments"] = '{"b": 2, "a": 2}'
    assert check_continuity(conversation(WHOLE[0], again)) == []


def test_tokens_must_continue_where_they_are_known() -> None:
    trajectory = conversation(*WHOLE)
    first, second, third = trajectory.model_calls
    first.prompt_ids, first.response_ids = [1, 2], [3]
    second.prompt_ids, second.response_ids = [1, 2, 3, 4], [5]
    third.prompt_ids = [1, 2, 9, 4, 5, 6]
    (loss,) = check_continuity(trajectory)
    assert (loss.call, loss.message) == (2, None)
    assert loss.kind == "tokens_broken"
    assert "token 2 of the 5" in loss.detail


def test_agents_of_a_team_are_followed_separately() -> None:
    trajectory = conversation(*WHOLE)
    other = ModelCall(agent="critic", messages=[USER], content="Good.")
    trajectory.steps.insert(1, other)
    assert check_continuity(trajectory) == []
