"""The ladder: which rung it stops at, what it asks before it spends, what it keeps."""

from pathlib import Path

import pytest

from agentgym.core.prices import Prices
from agentgym.errors import Interrupted, ProviderError, UsageError
from agentgym.plugins.improve.ladder import try_rungs
from agentgym.plugins.improve.rungs import Climb, Outcome, Price
from tests.observers import Seen
from tests.plugins.improve.scripts import Scripted, climb_in, reaches

PAID = Price("100 rollouts, about $2.00.", 2.0)


def test_it_stops_at_the_first_rung_that_meets_the_goal(tmp_path: Path) -> None:
    rungs = [
        Scripted("as it is", reaches(2)),
        Scripted("prompts", reaches(5), skipped="Left out: no model."),
        Scripted("warm start", reaches(9)),
        Scripted("left out", reaches(9), skipped="Left out."),
        Scripted("training", reaches(10), price=PAID),
    ]
    bill = try_rungs(rungs, climb_in(tmp_path))
    assert [rung.ran for rung in rungs] == [1, 0, 1, 0, 0]
    assert [rung.status for rung in bill.rungs] == ["missed", "skipped", "met"]
    assert bill.is_met
    before, after = bill.rungs[2].before, bill.rungs[2].after
    assert before is not None
    assert before.pass_1.value == 0.2
    assert after is not None
    assert after.pass_1.value == 0.9
    assert "90 % of 10 held-out tasks, 95 % interval" in bill.ended
    assert "interval reaches below the goal" in bill.ended
    assert "'training', would be: 100 rollouts, about $2.00." in bill.ended


def test_a_rung_that_cannot_run_is_said_at_the_start(tmp_path: Path) -> None:
    seen = Seen()
    rungs = [
        Scripted("as it is", reaches(9)),
        Scripted("prompts", reaches(9), skipped="Left out."),
    ]
    try_rungs(rungs, climb_in(tmp_path, progress=seen))
    assert seen.texts[0] == (
        "Plan, until one reaches the goal: as it is, then prompts (Left out)."
    )


def test_a_goal_that_is_met_already_is_said(tmp_path: Path) -> None:
    rungs = [Scripted("as it is", reaches(10)), Scripted("training", reaches(10))]
    bill = try_rungs(rungs, climb_in(tmp_path, goal=0.5))
    assert "It was met before anything was changed." in bill.ended
    assert "interval reaches below" not in bill.ended
    assert rungs[1].ran == 0


@pytest.mark.parametrize(
    ("cap", "answer", "yes", "says"),
    [
        (0.0, True, True, "Of --max-cost $0.00 there are $0.00 left."),
        (1.0, True, True, "Of --max-cost $1.00 there are $1.00 left."),
        (5.0, None, False, "Give --yes to spend up to --max-cost."),
        (5.0, False, False, "as you did not want it"),
        (5.0, True, False, ""),
        (5.0, None, True, ""),
    ],
)
def test_nothing_is_spent_without_a_yes_or_above_the_cap(
    tmp_path: Path, cap: float, answer: bool | None, yes: bool, says: str
) -> None:
    rungs = [Scripted("as it is", reaches(2)), Scripted("p", reaches(9), price=PAID)]
    asked = Seen(answer)
    climb = climb_in(tmp_path, cap=cap, yes=yes, progress=asked)
    bill = try_rungs(rungs, climb)
    assert rungs[1].ran == (not says)
    if says:
        assert says in bill.ended
        assert PAID.words in bill.ended
    assert bool(asked.facts) == (cap == 5.0 and not yes)


def test_what_fails_is_on_the_bill_and_the_next_rung_is_tried(tmp_path: Path) -> None:
    def fails(climb: Climb) -> Outcome:
        raise UsageError("the model cannot be read.")

    rungs = [Scripted("a", reaches(1)), Scripted("b", fails), Scripted("c", reaches(9))]
    bill = try_rungs(rungs, climb_in(tmp_path))
    assert [rung.status for rung in bill.rungs] == ["missed", "ended", "met"]
    assert "the model cannot be read." in bill.rungs[1].words


def test_the_cap_ends_the_ladder(tmp_path: Path) -> None:
    def spends(climb: Climb) -> Outcome:
        meter = climb.meter(Prices(prompt=1.0, response=0.0))
        while meter.reserve(0.4):
            meter.settle(0.4, (300_000, 0) if meter.cost else None)
        raise ProviderError(meter.refusal)

    rungs = [Scripted("a", spends, price=PAID), Scripted("b", reaches(9))]
    climb = climb_in(tmp_path, cap=3.0, yes=True)
    climb.purse.cap = 1.0  # the estimate was wrong
    rungs[0]._price = Price("unknown.", None)
    bill = try_rungs(rungs, climb)
    assert "The cap of $1.00 is reached" in bill.ended
    assert rungs[1].ran == 0
    assert bill.dollars == climb.purse.spent <= 1.0


def test_finished_rungs_are_kept_when_it_is_interrupted(tmp_path: Path) -> None:
    def interrupted(climb: Climb) -> Outcome:
        meter = climb.meter(Prices(prompt=1.0, response=1.0))
        assert meter.reserve(0.5)
        meter.settle(0.5, (250_000, 0))
        raise KeyboardInterrupt

    rungs = [Scripted("a", reaches(1)), Scripted("b", interrupted, price=PAID)]
    with pytest.raises(Interrupted, match=r"finished: a\. The same command goes on"):
        try_rungs(rungs, climb_in(tmp_path, cap=4.0, yes=True))
    again = [Scripted("a", reaches(1)), Scripted("b", reaches(9), price=PAID)]
    climb = climb_in(tmp_path, cap=4.0, yes=True)
    assert climb.purse.spent == 0.25
    bill = try_rungs(again, climb)
    assert [rung.ran for rung in again] == [0, 1]
    assert again[0].restored == 1
    assert bill.dollars == 0.25
    assert bill.is_met


def test_a_higher_goal_goes_on_where_a_lower_one_was_met(tmp_path: Path) -> None:
    rungs = [Scripted("a", reaches(1)), Scripted("b", reaches(8))]
    assert try_rungs(rungs, climb_in(tmp_path, goal=0.8)).is_met
    higher = [*rungs, Scripted("c", reaches(9))]
    bill = try_rungs(higher, climb_in(tmp_path, goal=0.9))
    assert [rung.ran for rung in higher] == [1, 1, 1]
    assert [rung.status for rung in bill.rungs] == ["missed", "missed", "met"]


def test_a_rung_that_comes_late_is_climbed_before_those_above_it(
    tmp_path: Path,
) -> None:
    left_out = Scripted("b", reaches(3), skipped="Left out.")
    rungs = [Scripted("a", reaches(1)), left_out, Scripted("c", reaches(5))]
    try_rungs(rungs, climb_in(tmp_path))
    left_out._skipped = ""
    bill = try_rungs(rungs, climb_in(tmp_path))
    assert [rung.ran for rung in rungs] == [1, 1, 2]
    assert [rung.name for rung in bill.rungs] == ["a", "b", "c"]
    late = bill.rungs[1].before
    assert late is not None
    assert late.pass_1.value == 0.1


def test_money_stays_on_the_bill_of_a_rung_that_is_climbed_again(
    tmp_path: Path,
) -> None:
    def spends(climb: Climb) -> Outcome:
        meter = climb.meter(Prices(prompt=1.0, response=0.0))
        assert meter.reserve(3.0)
        meter.settle(3.0, (3_000_000, 0))
        return reaches(3)(climb)

    def fails(climb: Climb) -> Outcome:
        raise UsageError("not yet.")

    costly = Price("about $2.50.", 2.5)
    first = [Scripted("a", fails), Scripted("b", spends, price=costly)]
    climb = climb_in(tmp_path, cap=5.0, yes=True)
    climb.bill.agent, climb.bill.run = "desk@1", "runs/x"
    assert try_rungs(first, climb).dollars == 3.0
    again = [Scripted("a", reaches(1)), Scripted("b", spends, price=costly)]
    climb = climb_in(tmp_path, cap=5.0, yes=True)
    bill = try_rungs(again, climb)
    assert [rung.ran for rung in again] == [1, 0], "3 of 5 dollars are gone"
    assert "there are $2.00 left" in bill.ended
    assert (bill.run, bill.agent) == ("", "")
    reopened = climb_in(tmp_path, cap=5.0)
    assert reopened.bill.dollars == reopened.purse.spent == 3.0
