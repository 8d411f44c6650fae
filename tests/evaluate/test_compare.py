"""Whether training helped: named changes, and how often chance is named."""

from random import Random

import pytest

from agentgym.evaluate.compare import holm, lost_families, measure_effect, stratified_p
from agentgym.evaluate.metrics import Metrics, TaskResult

TASKS, ATTEMPTS = 8, 4


def measured(**successes: list[int]) -> Metrics:
    """Return the metrics of families, each with the successes of its tasks."""
    return Metrics.of_tasks(
        [
            TaskResult(
                task_id=f"{family}-{index}",
                family=family,
                attempts=ATTEMPTS,
                successes=count,
                sums={"pass_1": (count, ATTEMPTS), "right_tool": (count, ATTEMPTS)},
            )
            for family, counts in successes.items()
            for index, count in enumerate(counts)
        ]
    )


def test_what_got_better_and_what_got_worse_are_named() -> None:
    before = measured(refund=[4] * TASKS, cancel=[0] * 12, search=[2] * TASKS)
    after = measured(refund=[4, 3, 1, 2, 2, 1, 2, 3], cancel=[4] * 12, search=[2] * 8)
    others = measured(a=[4] * TASKS), measured(a=[1] * TASKS)
    effect = measure_effect(before, after, {"out of vocabulary": others})
    assert effect is not None
    assert (effect.verdict, effect.tasks) == ("helped", 28)
    assert [c.name for c in effect.better if c.is_family] == ["cancel"]
    assert [change.words() for change in effect.worse] == [
        "refund 100 % -> 56 %",
        "out of vocabulary: right tool 100 % -> 25 %",
        "out of vocabulary: success 100 % -> 25 %",
    ]
    back = measure_effect(after, before)
    assert back is not None
    assert back.verdict == "hurt"


def test_a_policy_that_stays_as_it_is_changes_nothing() -> None:
    before = measured(refund=[4, 3, 2, 1] * 4, cancel=[0, 4] * 8)
    effect = measure_effect(before, before)
    assert effect is not None
    assert (effect.verdict, effect.p_value) == ("made no difference", 1.0)
    assert (effect.better, effect.worse) == ((), ())
    other_tasks = measured(refund=[4] * 3, search=[1] * 3)
    assert measure_effect(before, other_tasks) is None


@pytest.mark.slow
def test_chance_is_hardly_ever_named() -> None:
    """200 pairs of measurements of one policy: at most 5 % name any family."""
    random = Random(7)
    named = 0
    for _ in range(200):
        rates = {f"f{n}": [random.random() for _ in range(TASKS)] for n in range(10)}
        before, after = (
            measured(
                **{
                    family: [
                        sum(random.random() < rate for _ in range(ATTEMPTS))
                        for rate in each
                    ]
                    for family, each in rates.items()
                }
            )
            for _ in range(2)
        )
        effect = measure_effect(before, after)
        assert effect is not None
        named += any(c.is_family for c in (*effect.better, *effect.worse))
    assert named <= 16  # 10 are expected at most; 16 is two deviations above


def test_a_lost_family_is_found_among_few_tasks_and_among_others() -> None:
    old = measured(refund=[4, 4, 4], cancel=[0, 0, 0], search=[4, 4, 4])
    new = measured(refund=[0, 0, 0], cancel=[4, 4, 4], search=[4, 4, 3])
    assert [change.name for change in lost_families(old, new)] == ["refund"]
    elsewhere = measured(refund=[0] * 5, cancel=[4] * 5, search=[4] * 5)
    assert [change.name for change in lost_families(old, elsewhere)] == ["refund"]


@pytest.mark.parametrize(
    ("tables", "expected"),
    [
        ([(4, 4, 0, 4)], 2 / 70),  # the most extreme of 70 ways, and its mirror image
        ([(4, 4, 0, 4), (4, 4, 0, 4)], 2 / 4900),
        ([(4, 4, 4, 4), (0, 4, 0, 4)], 1.0),
        ([(3, 4, 1, 4)], (2 * 16 + 2) / 70),
    ],
)
def test_stratified_p_is_exact(
    tables: list[tuple[int, int, int, int]], expected: float
) -> None:
    assert stratified_p(tables) == pytest.approx(expected)


def test_holm_steps_down() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == [True, False, False, True]
    assert holm([0.02, 0.024]) == [True, True]
    assert holm([]) == []
