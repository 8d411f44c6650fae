"""A run ends when its goal holds or is out of reach, or when success has settled."""

from collections.abc import Callable, Mapping
from itertools import repeat
from statistics import median

import numpy as np
import pytest

from agentgym.evaluate.metrics import MetricName, Metrics, TaskResult
from agentgym.train.stopping import End, Stopping

GOAL: Mapping[MetricName, float] = {"pass_1": 0.95}
FAMILIES, TASKS, STEPS = 8, 64, 120


def result(
    task: str, family: int, *, solved: bool, reliable: float = 1.0
) -> TaskResult:
    return TaskResult(
        task_id=task,
        family=str(family),
        attempts=1,
        successes=solved,
        sums={"pass_1": (solved, 1), "tool_reliability": (reliable, 1)},
        rewards=(float(solved),),
    )


def measured(
    chance: float, random: np.random.Generator, reliable: float = 1.0
) -> Metrics:
    """Measure a policy that solves each task with this probability."""
    solved = random.random(TASKS) < chance
    return Metrics.of_tasks(
        [
            result(f"t{n}", n % FAMILIES, solved=bool(s), reliable=reliable)
            for n, s in enumerate(solved)
        ],
        k=1,
    )


def ended(
    curve: Callable[[int], float],
    *,
    seed: int = 0,
    goal: Mapping[MetricName, float] = GOAL,
    must_reach: bool = False,
    trains: Callable[[int], tuple[int, int, int]] = lambda step: (4, 2, 8),
    reliable: Callable[[int], float] = lambda step: 1.0,
) -> tuple[End | None, int]:
    """Simulate a run of 120 steps with a validation every five; return its end."""
    random = np.random.default_rng(seed)
    stopping = Stopping()
    stopping.add_validation(0, measured(curve(0), random, reliable(0)), goal)
    for step in range(1, STEPS + 1):
        stopping = Stopping.model_validate_json(stopping.model_dump_json())
        stopping.add_step(step - 1, [], goal, trains(step))
        if step % 5 == 0:
            found = measured(curve(step), random, reliable(step))
            stopping.add_validation(step, found, goal)
            end = stopping.end(step, STEPS - step, goal, must_reach=must_reach)
            if end is not None:
                return end, step
    return None, STEPS


def risen(step: int) -> float:
    return 0.5 + 0.4 * min(1.0, step / 25)


def test_a_run_that_always_succeeds_reaches_its_goal() -> None:
    """A hundred successes in a row are needed to show 95 %."""
    end, step = ended(lambda step: 0.6 if step < 5 else 1.0)

    assert end == "goal"
    assert 10 < step <= 30


@pytest.mark.parametrize("reliability", [0.5, 1.0])
def test_the_goal_is_all_of_its_metrics(reliability: float) -> None:
    goal: dict[MetricName, float] = {**GOAL, "tool_reliability": 0.95}

    end, _ = ended(repeat_of(1.0), goal=goal, reliable=repeat_of(reliability))

    assert (end == "goal") is (reliability == 1.0)


def repeat_of(value: float) -> Callable[[int], float]:
    return lambda step: next(repeat(value))


def test_a_run_whose_tasks_were_solved_before_it_ends_soon() -> None:
    """As after a warm start; so few tasks cannot show that the goal holds."""
    few = Metrics.of_tasks([result(f"t{n}", 0, solved=True) for n in range(13)], k=1)
    stopping = Stopping()
    ends = []
    for step in (0, 5, 10):
        stopping.add_validation(step, few, GOAL)
        ends.append(stopping.end(step, 100, GOAL))
    assert ends == [None, None, "settled"]


@pytest.mark.slow
def test_a_policy_just_below_the_goal_rarely_reaches_it() -> None:
    """By Ville's inequality, at most one run in twenty does."""
    ends = [ended(repeat_of(0.94), seed=seed)[0] for seed in range(60)]

    assert ends.count("goal") <= 3


def test_a_run_ends_soon_after_success_has_stopped_rising() -> None:
    """It has risen until step 25."""
    found = [ended(risen, seed=seed) for seed in range(9)]

    assert {end for end, _ in found} == {"settled"}
    assert 30 <= median(step for _, step in found) <= 60
    assert max(step for _, step in found) <= 80


def test_a_run_that_keeps_rising_goes_on() -> None:
    ends = [ended(lambda step: 0.1 + 0.8 * step / STEPS, seed=n) for n in range(6)]

    assert sum(step == STEPS for _, step in ends) >= 5


def test_a_run_that_never_improves_ends_within_the_first_third_of_its_budget() -> None:
    found = [ended(repeat_of(0.3), seed=seed) for seed in range(10)]

    assert sum(step <= STEPS / 3 for _, step in found) >= 8


def test_a_goal_out_of_reach_ends_only_runs_that_must_reach_it() -> None:
    def slow(step: int) -> float:
        return 0.2 + 0.2 * min(1.0, step / 30)

    end, step = ended(slow, must_reach=True)
    assert end == "out_of_reach"
    assert step <= STEPS / 2
    assert ended(slow)[0] == "settled"


def test_nothing_is_left_to_learn_when_attempts_end_alike() -> None:
    end, step = ended(risen, trains=lambda step: (4, 4, 8) if step < 10 else (0, 8, 8))

    assert end == "no_signal"
    assert step <= 30


def test_attempts_that_all_fail_are_given_longer_for_a_first_success() -> None:
    def late(step: int) -> tuple[int, int, int]:
        return (0, 0, 8) if step < 25 else (4, 0, 8)

    end, _ = ended(lambda step: 0.02 + 0.01 * max(0, step - 25), trains=late)
    assert end != "no_signal"
    assert ended(lambda step: 0.0, trains=lambda step: (0, 0, 8)) == ("no_signal", 30)


@pytest.mark.parametrize(
    ("right_tool", "before", "has_collapsed"),
    [
        ([0.7, 0.4, 0.5, 0.0, 0.0], 0.8, False),  # too few steps
        ([0.7, 0.4, 0.5, 0.2, 0.1, 0.0], 0.8, True),
        ([0.9, 0.9, 0.9, 0.4, 0.3, 0.2], 0.9, False),  # tasks that fail come more often
        ([0.7, 0.4, 0.5, 0.9, 0.2, 0.1, 0.0], 0.8, True),
        ([0.9, 0.9, 0.9, 0.1, 0.1, 0.1], 0.3, False),  # first single calls, then whole
    ],
)
def test_a_policy_that_stops_calling_the_right_tools_is_noticed(
    right_tool: list[float], before: float, has_collapsed: bool
) -> None:
    assert Stopping(right_tool=right_tool).has_collapsed(before) is has_collapsed


def test_the_same_tasks_each_time_are_compared_task_by_task() -> None:
    """Tasks that always end as before leave no doubt, however different they are."""
    tasks = [result(f"t{n}", 0, solved=n < 3) for n in range(6)]
    found = Metrics.of_tasks(tasks, k=1)
    gains = []
    for by_task in (False, True):
        stopping = Stopping()
        for step in range(0, 41, 5):
            stopping.add_validation(step, found, GOAL, by_task=by_task)
        gains.append(stopping.most_gain("pass_1", 40, 20))

    assert gains[1] < gains[0]
