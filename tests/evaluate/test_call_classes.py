"""Call classes, the alignment behind them, and the confusion matrix."""

from collections import Counter
from random import Random
from typing import Any, Literal

import pytest

from agentgym.core.needs import NeededCall, align
from agentgym.core.tools import (
    MALFORMED_CALL,
    ToolOutcome,
    ToolSpec,
    check_call,
    spec_of,
)
from agentgym.core.trajectory import ModelCall, ToolCall, Trajectory
from agentgym.evaluate.call_classes import (
    INVENTED,
    NO_CALL,
    NOTHING,
    OWN,
    CallClass,
    ConfusionMatrix,
    judge_calls,
)


def move(to: str, steps: int = 1, pace: Literal["slow", "fast"] = "slow") -> str:
    """Move."""
    return ""


def look(at: str) -> str:
    """Look."""
    return ""


def say(text: str) -> str:
    """Say."""
    return ""


SPECS: dict[str, ToolSpec] = {f.__name__: spec_of(f) for f in (move, look, say)}


def call(name: str, result: str = "", **arguments: Any) -> ToolCall:
    """Return a call with the outcome that its arguments deserve."""
    import json

    outcome, _ = check_call(SPECS, name, json.dumps(arguments))
    return ToolCall(name=name, arguments=arguments, outcome=outcome, result=result)


def failed(outcome: ToolOutcome, name: str = "move", **arguments: Any) -> ToolCall:
    return ToolCall(name=name, arguments=arguments, outcome=outcome)


def kinds(
    made: list[ToolCall],
    needed: list[NeededCall] | None = None,
    *,
    success: bool = False,
) -> list[CallClass]:
    """Return the classes of calls; each lands in exactly one."""
    trajectory = Trajectory(
        rollout_id="r", scenario="s", task_id="t", steps=[*made], success=success
    )
    judged = judge_calls(trajectory, needed, SPECS)
    assert [j.call for j in judged] == made
    return [j.kind for j in judged]


NEEDED = [NeededCall("move", {"to": "a"}), NeededCall("look", {"at": "b"})]


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (call("fly", to="a"), CallClass.INVENTED_TOOL),
        (
            ToolCall(name="move", arguments=None, outcome=ToolOutcome.MALFORMED),
            CallClass.MALFORMED,
        ),
        (
            ToolCall(
                name=MALFORMED_CALL,
                arguments={"written": "<tool_call>{"},
                outcome=ToolOutcome.MALFORMED,
            ),
            CallClass.MALFORMED,
        ),
        (call("move"), CallClass.MISSING),
        (call("move", too="a"), CallClass.MISSING),
        (call("move", to="a", speed=3), CallClass.EXTRA),
        (call("move", to="a", speed=3, steps="x"), CallClass.EXTRA),
        (call("move", to=3), CallClass.WRONG_TYPE),
        (call("move", to="a", steps="many"), CallClass.WRONG_TYPE),
        (call("move", to="a", steps=1.5), CallClass.WRONG_TYPE),
        (call("move", to=None), CallClass.WRONG_TYPE),
        (call("move", to="a", pace="brisk"), CallClass.WRONG_VALUE),
        (failed(ToolOutcome.RULE_BROKEN, to="a"), CallClass.RULE_BROKEN),
        (call("move", to="b"), CallClass.WRONG_VALUE),
        (failed(ToolOutcome.RAISED, to="nowhere"), CallClass.WRONG_VALUE),
        (failed(ToolOutcome.RAISED, to="a"), CallClass.RAISED),
        (failed(ToolOutcome.RAISED, "say", text="x"), CallClass.RAISED),
        (call("say", text="x"), CallClass.WRONG_TOOL),
    ],
)
def test_the_only_call_where_one_is_needed(made: ToolCall, expected: str) -> None:
    assert kinds([made], NEEDED[:1]) == [expected]


def test_calls_beyond_the_plan() -> None:
    made = [
        call("look", "seen", at="b"),
        call("move", to="a"),
        call("look", "seen", at="b"),
        call("look", "changed", at="b"),
    ]
    assert kinds(made, NEEDED[:1]) == [
        CallClass.UNNEEDED,
        CallClass.RIGHT,
        CallClass.REPEATED,
        CallClass.UNNEEDED,
    ]


def test_what_only_the_outcome_can_judge() -> None:
    need = [NeededCall("say", {"text": "hello"}, by_outcome=frozenset({"text"}))]
    made = [call("say", text="good day")]
    assert kinds(made, need, success=True) == [CallClass.RIGHT]
    assert kinds(made, need, success=False) == [CallClass.WRONG_VALUE]


def test_order_is_kept() -> None:
    made = [call("look", at="b"), call("move", to="a")]
    places = align(NEEDED, made, SPECS, succeeded=False)
    assert places in ([None, 0], [1, None])


@pytest.mark.parametrize("seed", range(30))
def test_no_alignment_in_order_makes_more_calls_right(seed: int) -> None:
    """Against the longest common subsequence, computed another way."""
    rng = Random(seed)
    needed = [NeededCall("look", {"at": rng.choice("abc")}) for _ in range(5)]
    made = [call("look", at=rng.choice("abcd")) for _ in range(6)]
    found = align(needed, made, SPECS, succeeded=False)
    places = [place for place in found if place is not None]
    assert places == sorted(set(places))
    right = sum(
        needed[place].accepts(made[i], SPECS["look"], False)
        for i, place in enumerate(found)
        if place is not None
    )
    assert right == _common(
        [n.arguments["at"] for n in needed],
        [str((c.arguments or {})["at"]) for c in made],
    )


def _common(a: list[str], b: list[str]) -> int:
    if not a or not b:
        return 0
    if a[0] == b[0]:
        return 1 + _common(a[1:], b[1:])
    return max(_common(a[1:], b), _common(a, b[1:]))


def test_confusion_adds_up() -> None:
    made = [call("say", text="x"), call("fly"), call("look", at="b"), call("say")]
    episode = Trajectory(rollout_id="r", scenario="s", task_id="t", steps=[*made])
    needed = [*NEEDED, NeededCall("move", {"to": "c"}), NeededCall("move", {"to": "d"})]
    judged = judge_calls(episode, needed, SPECS)
    none = judge_calls(episode, [], SPECS)
    matrix = ConfusionMatrix.of(list(SPECS), [(needed, judged), ([], none)])
    assert matrix.counts["look"] == {"look": 1}
    assert matrix.counts["move"] == {"say": 2, NO_CALL: 1}
    assert matrix.counts[NOTHING] == {"look": 1, "say": 2, INVENTED: 2}
    by_row = Counter(need.tool for need in needed)
    for tool in SPECS:
        assert sum(matrix.counts[tool].values()) == by_row[tool]
    rows = matrix.counts.values()
    missed = sum(row.get(NO_CALL, 0) for row in rows)
    assert sum(sum(row.values()) for row in rows) == 2 * len(made) + missed
    assert missed == len(needed) - sum(j.needed is not None for j in judged)


HAND_OFF = {
    "name": "transfer",
    "parameters": {
        "type": "object",
        "properties": {"why": {"type": "string", "enum": ["a", "b"]}},
        "required": ["why"],
        "additionalProperties": False,
    },
}


@pytest.mark.parametrize(
    ("arguments", "outcome", "kind"),
    [
        ({"why": "a"}, ToolOutcome.OK, CallClass.OWN),
        (None, ToolOutcome.MALFORMED, CallClass.MALFORMED),
        ({}, ToolOutcome.INVALID_ARGUMENTS, CallClass.MISSING),
        ({"why": "a", "x": 1}, ToolOutcome.INVALID_ARGUMENTS, CallClass.EXTRA),
        ({"why": 3}, ToolOutcome.INVALID_ARGUMENTS, CallClass.WRONG_TYPE),
        ({"why": "c"}, ToolOutcome.INVALID_ARGUMENTS, CallClass.WRONG_VALUE),
        ({"why": "a"}, ToolOutcome.UNKNOWN_TOOL, CallClass.INVENTED_TOOL),
    ],
)
def test_a_hand_off_is_judged_by_what_was_offered_and_stands_for_no_need(
    arguments: dict[str, Any] | None, outcome: ToolOutcome, kind: CallClass
) -> None:
    asked = ModelCall(tools=[{"type": "function", "function": HAND_OFF}])
    made = ToolCall(name="transfer", arguments=arguments, outcome=outcome)
    right = call("look", at="b")
    steps = [asked, made, ModelCall(), right]
    episode = Trajectory(rollout_id="r", scenario="s", task_id="t", steps=steps)
    judged = judge_calls(episode, NEEDED, SPECS)
    assert [j.kind for j in judged] == [kind, CallClass.RIGHT]
    matrix = ConfusionMatrix.of(list(SPECS), [(NEEDED, judged)])
    if outcome is ToolOutcome.UNKNOWN_TOOL:
        assert matrix.counts["move"] == {INVENTED: 1}
    else:
        assert judged[0].needed is None
        assert matrix.counts[NOTHING] == {OWN: 1}
        assert matrix.counts["move"] == {NO_CALL: 1}


def test_a_call_that_could_not_be_read_has_a_column_of_its_own() -> None:
    made = ToolCall(name=MALFORMED_CALL, arguments={}, outcome=ToolOutcome.MALFORMED)
    trajectory = Trajectory(rollout_id="r", scenario="s", task_id="t", steps=[made])
    (judged,) = judge_calls(trajectory, NEEDED, SPECS)

    assert judged.column([*SPECS]) == "(malformed)"
