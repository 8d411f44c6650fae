"""Metrics: what is counted, and how wide the intervals are."""

import pytest

from agentgym.core.prices import Prices
from agentgym.core.tools import ToolOutcome
from agentgym.core.trajectory import (
    OWN,
    ModelCall,
    RequestedCall,
    RolloutStatus,
    ToolCall,
    Trajectory,
)
from agentgym.evaluate.advice import cut_words
from agentgym.evaluate.compare import compare
from agentgym.evaluate.metrics import METRICS, Metrics, TaskResult
from agentgym.evaluate.rows import rows, values


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
    assert metrics.reward.value == 0.5
    assert metrics.right_arguments.value == 0.5


def test_nothing_scored_is_refused() -> None:
    with pytest.raises(ValueError, match="No rollout was scored"):
        Metrics.of([attempt("a", None)])


def test_k_is_lowered_to_the_fewest_attempts() -> None:
    made = [attempt("a", True)] * 4 + [attempt("b", True)] * 2
    assert Metrics.of(made, k=4).k == 2


def test_an_answer_in_a_form_is_not_a_tool_call() -> None:
    asked = RequestedCall(id="1", name="verdict", arguments="{}")
    tool = {"type": "function", "function": {"name": "verdict"}}
    call = ModelCall(tools=[tool], tool_calls=[asked], wants_call=True)
    answer = ToolCall(id="1", name="verdict", arguments={}, result=OWN)
    made = attempt("a", True).model_copy(update={"steps": [call, answer]})
    assert Metrics.of([made]).tool_reliability.n == 0


def test_reliability_is_over_calls_not_rollouts() -> None:
    made = [
        attempt("a", True, outcomes=(ToolOutcome.OK,) * 3),
        attempt("b", True, outcomes=(ToolOutcome.RULE_BROKEN,)),
        attempt("c", True, outcomes=()),
    ]
    reliability = Metrics.of(made).tool_reliability
    assert reliability.value == 0.75
    assert reliability.n == 2


def test_tokens_that_a_server_counted_are_tokens() -> None:
    counted = attempt("a", True)
    counted.steps[0] = ModelCall(prompt_tokens=100, response_tokens=7)
    metrics = Metrics.of([counted], prices=Prices(prompt=2.0, response=10.0))
    assert (metrics.prompt_tokens.value, metrics.tokens.value) == (100, 7)
    assert metrics.cost.value == pytest.approx((2 * 100 + 10 * 7) / 1e6)


def requests(*counts: tuple[int, int], forgets: bool = False) -> Trajectory:
    """Return an attempt whose requests have these prompt and response tokens.

    Each request has the messages of the one before, unless the agent ``forgets``.
    """
    made = attempt("a", True)
    messages = [{"role": "user", "content": f"m{n}"} for n in range(len(counts))]
    made.steps = [
        ModelCall(
            messages=messages[n if forgets else 0 : n + 1],
            prompt_tokens=prompt,
            response_tokens=response,
        )
        for n, (prompt, response) in enumerate(counts)
    ]
    return made


def test_the_cost_of_a_task_has_prompt_cached_and_sampled_tokens() -> None:
    turns = (100, 10), (130, 20), (170, 5)
    first = 100 + 30 + 40 + 0.25 * (100 + 130) + 4 * 35
    assert Metrics.of([requests(*turns)]).token_cost.value == pytest.approx(first)
    afresh = Metrics.of([requests(*turns, forgets=True)])
    assert afresh.token_cost.value == pytest.approx(400 + 4 * 35)
    dear = Prices(prompt=2.0, cached=2.0, response=20.0)
    metrics = Metrics.of([requests(*turns)], replaced=dear)
    assert metrics.token_cost.value == pytest.approx(400 + 10 * 35)


def test_dollars_per_success_count_tasks_that_were_never_solved() -> None:
    def measured(solved: int, cost: float) -> Metrics:
        return Metrics.of_tasks(
            [
                TaskResult(
                    task_id=f"t{n}",
                    attempts=2,
                    successes=2 * (n < solved),
                    sums={"cost": (cost, 2), "pass_1": (2 * (n < solved), 2)},
                )
                for n in range(10)
            ]
        )

    old, new = measured(5, 0.02), measured(8, 0.04)
    assert old.cost_per_success.value == pytest.approx(10 * 0.02 / 10)
    assert new.cost_per_success.value == pytest.approx(10 * 0.04 / 16)
    assert old.cost_per_success.low < 0.02 < old.cost_per_success.high
    change = compare(old, new).differences["cost_per_success"]
    assert change.value == pytest.approx(0.025 - 0.02)
    assert measured(0, 0.02).cost_per_success.n == 0
    assert measured(5, 0.0).cost_per_success.n == 0  # a model on this machine
    labels = [row.label for row in rows(old, new, METRICS)]
    assert "$ per 1,000 successes" in labels


def test_pass_1_stands_again_with_dropped_rollouts_as_failed_where_any_was() -> None:
    whole = Metrics.of([attempt("a", True), attempt("b", True), attempt("b", False)])
    lossy = Metrics.of([attempt("a", None), attempt("b", True), attempt("b", None)])

    assert (lossy.pass_1.value, whole.pass_1.value) == (1.0, pytest.approx(2 / 3))
    assert (lossy.pass_1_of_all.value, lossy.pass_1_of_all.n) == (
        pytest.approx(1 / 3),
        2,
    )
    assert compare(whole, lossy).differences["pass_1_of_all"].value < 0
    label = "pass^1, dropped as failed"
    assert label not in [row.label for row in rows(whole, whole)]
    (row,) = (row for row in rows(whole, lossy) if row.label == label)
    assert (row.before[:4], row.after[:4]) == ("67 %", "33 %")
    assert label in dict(values(lossy))
    assert label not in dict(values(whole))


def test_answers_that_were_cut_are_counted_and_warned_of_from_two_percent_on() -> None:
    def made(cut: int) -> Metrics:
        answers = [
            ModelCall(finish_reason="length" if n < cut else "stop") for n in range(100)
        ]
        return Metrics.of([attempt("a", True).model_copy(update={"steps": answers})])

    assert made(2).answers_cut.value == 0.02
    assert cut_words(made(1).answers_cut.value, 160) == ""
    assert "2 % of the model's answers" in cut_words(made(2).answers_cut.value, 160)
    assert "(max_tokens = 160)" in cut_words(made(2).answers_cut.value, 160)


def test_cost_is_zero_here_and_unknown_without_prices() -> None:
    made = [attempt("a", True)]
    assert (Metrics.of(made).cost.value, Metrics.of(made).cost.n) == (0.0, 1)
    assert Metrics.of(made, prices=None).cost.n == 0
