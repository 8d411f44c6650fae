"""What each role of a team did, from its trajectories."""

from typing import Any

import pytest

from agentgym.core.needs import NeededCall, Needs
from agentgym.core.tools import ToolOutcome, spec_of
from agentgym.core.trajectory import (
    ModelCall,
    Reason,
    RequestedCall,
    ToolCall,
    Trajectory,
)
from agentgym.errors import UsageError
from agentgym.evaluate.metrics import Metrics, check_roles, role_metrics


def add(a: int) -> str:
    """Add."""
    return ""


def mail(to: str) -> str:
    """Mail."""
    return ""


SPECS = {function.__name__: spec_of(function) for function in (add, mail)}
PLAN = [NeededCall("add", {"a": 1}), NeededCall("mail", {"to": "x"})]
NEEDS = Needs({"t0": PLAN, "t1": PLAN, "t2": None}, SPECS)


def asks(role: str, *names: str, offered: str = "add mail", **more: Any) -> ModelCall:
    """Return a model call of a role that reads 9 tokens and samples 5."""
    return ModelCall(
        agent=role,
        tools=[SPECS[name].to_openai() for name in offered.split()],
        tool_calls=[RequestedCall(id="", name=n, arguments="{}") for n in names],
        **{"prompt_ids": [0] * 9, "response_ids": [0] * 5, **more},
    )


def ran(name: str, outcome: ToolOutcome = ToolOutcome.OK, **given: Any) -> ToolCall:
    return ToolCall(name=name, arguments=given, outcome=outcome)


def episode(task: str, *steps: ModelCall | ToolCall, **more: Any) -> Trajectory:
    given = {"reward": 0.0, "success": False, **more}
    return Trajectory(
        rollout_id="r", scenario="s", task_id=task, steps=[*steps], **given
    )


def test_each_role_is_counted_and_all_add_up() -> None:
    """The clerk adds and fails to mail; the boss could have mailed, and did not."""
    first = episode(
        "t0",
        asks("boss", offered="mail"),
        asks("clerk", "add", "mail"),
        ran("add", a=1),
        ran("mail", ToolOutcome.MALFORMED),
        asks("boss", offered="mail"),
        ran("add", a=7),  # by code of the agent's own
    )
    second = episode(
        "t1", asks("boss", offered="mail"), reason=Reason(kind="max_turns")
    )
    whole = Metrics.of([first, second], k=1, needs=NEEDS)
    found = role_metrics(whole)
    boss, clerk = found["boss"], found["clerk"]
    assert list(found) == ["boss", "clerk"]
    assert (boss.rollouts, clerk.rollouts) == (2, 1)
    assert (boss.model_calls.value, clerk.model_calls.value) == (1.5, 0.5)
    for name in ("model_calls", "tokens", "prompt_tokens"):
        every = sum(role[name].value for role in found.values())  # type: ignore[literal-required]
        assert every == whole[name].value  # type: ignore[literal-required]
    assert clerk.tool_reliability.value == 0.5
    assert not boss.tool_reliability.n
    assert (boss.cut.value, clerk.cut.value) == (0.5, 0.0)
    assert clerk.right_tool.value == 1.0  # both of those that it made
    assert (boss.right_tool.value, boss.right_tool.n) == (0.0, 1)  # t1's, unmade


def test_a_needed_call_that_nobody_made_is_of_all_who_were_offered_the_tool() -> None:
    steps = [asks("boss", offered="mail"), asks("clerk", "add"), ran("add", a=1)]
    found = role_metrics(Metrics.of([episode("t0", *steps)], k=1, needs=NEEDS))
    assert found["boss"].right_tool.value == 0.0
    assert found["clerk"].right_tool.value == 0.5


def test_tokens_of_a_rollout_that_are_not_all_known_are_not_counted() -> None:
    unknown = {"prompt_ids": [], "response_ids": []}
    steps = [asks("boss"), asks("clerk", **unknown)]
    whole = Metrics.of([episode("t2", *steps)], k=1, needs=NEEDS)
    assert not whole.tokens.n
    assert not role_metrics(whole)["boss"].tokens.n


@pytest.mark.parametrize("role", ["agent", "boss"])
def test_one_role_is_no_team(role: str) -> None:
    whole = Metrics.of([episode("t0", asks(role))], k=1, needs=NEEDS)
    assert role_metrics(whole) == {}
    check_roles([role], [whole])
    check_roles(None, [whole])
    with pytest.raises(UsageError, match=f"'clerk', and no agent .* have: {role}."):
        check_roles([role, "clerk"], [whole])


def test_a_role_that_alone_spoke_before_is_measured_beside_the_others() -> None:
    alone = Metrics.of([episode("t0", asks("boss", "add"))], k=1, needs=NEEDS)
    steps = [asks("boss"), asks("clerk", "add"), ran("add", a=1)]
    team = Metrics.of([episode("t0", *steps)], k=1, needs=NEEDS)
    before = role_metrics(alone, team)
    assert list(before) == ["boss", "clerk"]
    assert (before["boss"].rollouts, before["clerk"].rollouts) == (1, 0)
    assert before["boss"].model_calls.value == 1.0
