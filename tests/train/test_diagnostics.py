"""What validations show: the best one, and what tells against a run."""

from agentgym.evaluate.metrics import Metrics, RoleSums, TaskResult
from agentgym.train.diagnostics import Watch


def role(*, cut: int) -> RoleSums:
    """Return the figures of a single agent that made nine model calls."""
    return RoleSums(
        attempts=1,
        model_calls=9,
        cut=cut,
        tool_calls=9,
        reliable=9,
        needed=0,
        right_tool=0,
        tokens=90,
        prompt_tokens=900,
    )


def measured(
    success: int,
    *,
    right_tool: int = 50,
    calls: dict[str, int] | None = None,
    solved: str = "ab",
    cut: int = 0,
) -> Metrics:
    """Return a measurement of a hundred tasks, shares in per cent."""
    return Metrics.of_tasks(
        [
            TaskResult(
                task_id=str(number),
                family="abc"[number % 3],
                attempts=1,
                successes=int(number < success and "abc"[number % 3] in solved),
                sums={
                    "pass_1": (float(number < success), 1.0),
                    "right_tool": (float(number < right_tool), 1.0),
                    "reward": (float(number < success), 1.0),
                },
                calls=calls or {"find": 1, "book": 1},
                roles={"agent": role(cut=int(number < cut))},
            )
            for number in range(100)
        ]
    )


BASELINE = measured(10)


def kinds(
    watch: Watch, step: int, found: Metrics, trained: tuple[float, int] | None = None
) -> list[str]:
    return [remark.kind for remark in watch.add(step, found, BASELINE, trained)]


def test_the_best_two_validations_in_a_row_are_remembered() -> None:
    """One lucky validation between worse ones is not the best."""
    watch = Watch()
    for step, success in [(5, 20), (10, 61), (15, 20), (20, 50), (25, 50), (30, 40)]:
        kinds(watch, step, measured(success))

    assert watch.best_step == 25
    assert watch.history[1] == (10, watch.history[1][1])


def test_training_tasks_learnt_by_heart_are_reported_with_a_number() -> None:
    watch = Watch()
    assert kinds(watch, 1, measured(20), (0.5, 9)) == []
    assert kinds(watch, 2, measured(20), (0.98, 9)) == ["overfit"]
    said = watch.remarks[0].text
    assert "98 % of the attempts at the 9 training tasks succeed" in said
    assert "Write about 27 more" in said


def test_a_choice_of_tools_worse_than_before_is_reported() -> None:
    watch = Watch()
    collapsed = measured(10, right_tool=20, calls={"find": 9, "book": 1})
    assert kinds(watch, 1, collapsed) == ["right_tool", "one_tool"]
    assert kinds(watch, 2, collapsed) == []
    told = " ".join(remark.text for remark in watch.remarks)
    assert "20 % of the calls needed, 50 % before training" in told
    assert "find takes 90 % of all tool calls, 50 % before training" in told


def test_one_tool_may_take_over_where_tools_are_chosen_better() -> None:
    better = measured(50, right_tool=90, calls={"find": 9, "book": 1})
    assert kinds(Watch(), 1, better) == []


def test_families_never_solved_are_named_after_some_validations() -> None:
    watch = Watch()
    assert kinds(watch, 1, measured(20)) == []
    assert kinds(watch, 2, measured(21)) == []
    assert kinds(watch, 3, measured(22)) == ["unsolved"]
    assert "1 of 3 families" in watch.remarks[0].text
    assert kinds(watch, 4, measured(23, solved="abc")) == []
    assert watch.remarks == []


def test_rollouts_that_go_on_until_their_limit_are_reported() -> None:
    watch = Watch()
    assert kinds(watch, 1, measured(20, cut=40)) == []
    assert kinds(watch, 2, measured(21, cut=64)) == ["no_end"]
    assert watch.remarks[0].text.startswith("64 % of rollouts end at their limit")
