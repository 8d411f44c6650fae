"""Metrics: what is counted, and how wide the intervals are."""

import pytest

from agentgym.core.metrics import Metrics, estimate_ratio, pass_power_k, wilson
from agentgym.core.tools import ToolOutcome
from agentgym.core.trajectory import ModelCall, RolloutStatus, ToolCall, Trajectory


def attempt(
    task: str,
    success: bool | None,
    *,
    outcomes: tuple[ToolOutcome, ...] = (ToolOutcome.OK,),
    tokens: int = 10,
) -> Trajectory:
    """Return one attempt at ``task``; None for ``success`` means dropped."""
    call = ModelCall(response_ids=[0] * tokens)
    tools = [ToolCall(name="t", outcome=outcome) for outcome in outcomes]
    return Trajectory(
        rollout_id=f"{task}",
        scenario="made_up",
        task_id=task,
        steps=[call, *tools],
        reward=None if success is None else float(success),
        success=success,
        right_tool=None if success is None else float(success),
        right_arguments=None if success is None else 0.5,
        status=RolloutStatus.DROPPED if success is None else RolloutStatus.SUCCEEDED,
    )


def test_dropped_rollouts_count_nowhere_else() -> None:
    metrics = Metrics.of([attempt("a", True), attempt("b", False), attempt("b", None)])
    assert (metrics.tasks, metrics.rollouts, metrics.dropped) == (2, 2, 1)
    assert metrics.pass_1.value == 0.5
    assert metrics.success_rate == 0.5
    assert metrics.reward.value == 0.5
    assert metrics.right_arguments.value == 0.5


def test_nothing_scored_is_refused() -> None:
    with pytest.raises(ValueError, match="No rollout was scored"):
        Metrics.of([attempt("a", None)])


@pytest.mark.parametrize(
    ("successes", "attempts", "k", "expected"),
    [(4, 4, 4, 1.0), (3, 4, 4, 0.0), (3, 4, 2, 0.5), (2, 4, 1, 0.5), (0, 4, 2, 0.0)],
)
def test_pass_power_k_is_the_share_of_k_subsets_that_succeed(
    successes: int, attempts: int, k: int, expected: float
) -> None:
    made = [attempt("a", i < successes) for i in range(attempts)]
    assert pass_power_k(made, k) == pytest.approx(expected)


def test_k_is_lowered_to_the_fewest_attempts() -> None:
    made = [attempt("a", True)] * 4 + [attempt("b", True)] * 2
    assert Metrics.of(made, k=4).k == 2


def test_reliability_is_over_calls_not_rollouts() -> None:
    made = [
        attempt("a", True, outcomes=(ToolOutcome.OK,) * 3),
        attempt("b", True, outcomes=(ToolOutcome.RULE_BROKEN,)),
        attempt("c", True, outcomes=()),
    ]
    reliability = Metrics.of(made).tool_reliability
    assert reliability.value == 0.75
    assert reliability.n == 2


@pytest.mark.parametrize("outcome", [o for o in ToolOutcome if o is not ToolOutcome.OK])
def test_every_other_outcome_is_unreliable(outcome: ToolOutcome) -> None:
    metrics = Metrics.of([attempt("a", True, outcomes=(outcome,))])
    assert metrics.tool_reliability.value == 0.0


def test_without_tool_calls_reliability_is_not_measured() -> None:
    assert Metrics.of([attempt("a", True, outcomes=())]).tool_reliability.n == 0


def test_cost_is_per_rollout() -> None:
    metrics = Metrics.of([attempt("a", True, tokens=10), attempt("b", True, tokens=30)])
    assert metrics.tokens.value == 20
    assert metrics.model_calls.value == 1


def test_interval_holds_the_mean_and_narrows_with_tasks() -> None:
    few = estimate_ratio([(float(i % 2), 1.0) for i in range(10)])
    many = estimate_ratio([(float(i % 2), 1.0) for i in range(1000)])
    for found in (few, many):
        assert found.low < found.value == 0.5 < found.high
    assert many.high - many.low < (few.high - few.low) / 5


def test_attempts_at_one_task_are_not_taken_for_independent() -> None:
    by_task = estimate_ratio([(8.0 * (i % 2), 8.0) for i in range(20)])
    as_if_free = estimate_ratio([(float(i % 2), 1.0) for i in range(160)])
    assert by_task.high - by_task.low > 2 * (as_if_free.high - as_if_free.low)


def test_unanimous_tasks_still_have_an_interval() -> None:
    found = estimate_ratio([(1.0, 1.0)] * 20)
    assert found.value == found.high == 1.0
    assert found.low == pytest.approx(0.839, abs=0.001)  # Wilson's, 20 of 20


def test_wilson_matches_published_values() -> None:
    low, high = wilson(0.5, 10)
    assert (low, high) == pytest.approx((0.2366, 0.7634), abs=1e-4)


def test_intervals_are_the_same_each_time() -> None:
    pairs = [(float(i % 3 == 0), 1.0) for i in range(50)]
    assert estimate_ratio(pairs) == estimate_ratio(pairs)


def test_unanimous_means_are_no_shares() -> None:
    metrics = Metrics.of([attempt("a", True), attempt("b", True)])
    assert metrics.model_calls.low == metrics.model_calls.high == 1.0
    assert metrics.pass_1.low < 1.0
