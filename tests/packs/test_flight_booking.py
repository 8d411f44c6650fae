"""The flight desk: its rules, its outcomes, and requests that can be fulfilled."""

import asyncio
from typing import Any

import pytest

from agentgym import Reward, Split, Task
from agentgym.core.tools import ToolOutcome
from agentgym.core.trajectory import Trajectory
from agentgym.evaluate.baselines import Call, play
from agentgym.scenarios.registry import get_scenario
from tests.some import some

PACK = "flight_booking"
SCENARIO = get_scenario(PACK)
FAMILIES = 11


def task_of(family: str, **wanted: Any) -> Task:
    """Return the first training task of a family whose booking is as wanted."""
    fields = ("code", "flight", "passenger", "fare", "bags", "passport", "status")
    for task in SCENARIO.tasks(Split.TRAIN, 0, 40 * FAMILIES):
        [row] = task.initial_state["bookings"]
        booking = dict(zip([*fields, "hours", "refunded"], row, strict=True))
        booking["late"] = booking["hours"] > 24
        booking["abroad"] = bool(task.initial_state["flights"][0][6])
        if task.family == family and wanted.items() <= booking.items():
            return task
    raise AssertionError(f"no {family} with {wanted}")


def needed(task: Task) -> list[Call]:
    calls = SCENARIO.needed_calls(task)
    assert calls is not None
    return [Call(call.tool, dict(call.arguments)) for call in calls]


def run(task: Task, calls: list[Call]) -> tuple[Trajectory, Reward]:
    return asyncio.run(play(SCENARIO, task, calls))


@pytest.mark.slow
@pytest.mark.parametrize("split", list(Split))
def test_every_argument_is_in_the_request_or_an_earlier_result(split: Split) -> None:
    for task in some(SCENARIO.tasks(split, 3, 10 * FAMILIES)):
        trajectory, reward = run(task, needed(task))
        assert reward.success, task.id
        assert reward.value == 1.0
        known = task.instruction
        for call in trajectory.get_tool_calls():
            for value in (call.arguments or {}).values():
                if not isinstance(value, bool):  # a refund follows from the hours
                    assert str(value) in known, (task.instruction, call)
            known += " " + call.result


def test_a_basic_fare_is_read_and_not_changed() -> None:
    task = task_of("change", fare="basic")
    [read] = needed(task)
    flight = task.initial_state["flights"][-1][0]
    change = Call("change_flight", {**read.arguments, "flight": flight})
    trajectory, reward = run(task, [read, change])
    assert trajectory.get_tool_calls()[1].outcome is ToolOutcome.RULE_BROKEN
    assert not reward.success
    flexible = task_of("change", fare="flex")
    assert [call.name for call in needed(flexible)] == ["read_booking", "change_flight"]


@pytest.mark.parametrize("late", [True, False])
def test_refunds_follow_the_age_of_the_booking(late: bool) -> None:
    task = task_of("cancel", late=late)
    read, cancel = needed(task)
    assert cancel.arguments["refund"] is not late
    other = Call(cancel.name, {**cancel.arguments, "refund": late})
    trajectory, reward = run(task, [read, other])
    assert not reward.success
    refused = trajectory.get_tool_calls()[1].outcome is ToolOutcome.RULE_BROKEN
    assert refused is late


def test_flights_abroad_need_a_passport() -> None:
    task = task_of("book", abroad=True)
    [book] = needed(task)
    without = {k: v for k, v in book.arguments.items() if k != "passport"}
    trajectory, _ = run(task, [Call(book.name, without)])
    assert trajectory.get_tool_calls()[0].outcome is ToolOutcome.RULE_BROKEN
    assert "passport" in task.instruction
    assert "passport" not in task_of("book", abroad=False).instruction


def test_the_wrong_flight_is_no_success() -> None:
    task = task_of("book_cheapest")
    search, book = needed(task)
    rows = run(task, [search])[0].get_tool_calls()[0].result.splitlines()
    prices = {row.split()[0]: int(row.split()[2]) for row in rows}
    assert min(prices, key=lambda code: prices[code]) == book.arguments["flight"]
    dear = max(prices, key=lambda code: prices[code])
    _, reward = run(task, [search, Call(book.name, {**book.arguments, "flight": dear})])
    assert not reward.success
    assert 0 < reward.value < 0.4


def test_needless_calls_cost_a_little_each_and_guesses_everything() -> None:
    task = task_of("read")
    [read] = needed(task)
    assert run(task, [read, read])[1].value == pytest.approx(0.97)
    assert run(task, [read] * 3)[1].success
    assert run(task, [read] * 5)[1].value == pytest.approx(0.88)
    assert run(task, [read] * 40)[1].value == 0.5
    others = [Call(read.name, {"booking": f"XX{n}"}) for n in range(3)]
    assert run(task, [*others[:1], read])[1].success
    guessed = run(task, [*others, read])[1]
    assert (guessed.success, guessed.value) == (False, 0)
