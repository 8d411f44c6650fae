"""The reward: the outcome first; nothing for idling, flooding or guessing."""

from functools import partial
from typing import Any

import pytest

from agentgym.core.task import Task
from agentgym.core.trajectory import Reward
from agentgym.packs.customer_support.scenario import CustomerSupportScenario
from recipes.nano.customer_support_oracle import solve
from tests.packs.conftest import Calls
from tests.packs.conftest import play as play_calls
from tests.packs.conftest import task_of as find_task

SCENARIO = CustomerSupportScenario()
task_of = partial(find_task, SCENARIO)


async def play(task: Task, calls: Calls) -> Reward:
    return (await play_calls(SCENARIO, task, calls))[1]


def plan_of(task: Task) -> list[tuple[str, dict[str, Any]]]:
    extra = {"escalate": {"reason": "x"}}
    return [(s.tool, {**s.args, **extra.get(s.tool, {})}) for s in solve(task)]


@pytest.mark.parametrize("family", ["cancel", "check_stock", "refund"])
async def test_failed_and_repeated_calls_cost_and_leave_success_its_share(
    family: str,
) -> None:
    task = task_of(family, 1)
    plan = plan_of(task)
    miss: tuple[str, dict[str, Any]] = ("check_stock", {"product": "nothing"})
    if family == "check_stock":
        miss = ("track_shipment", {"order_id": "nothing"})
    success = await play(task, [*plan, miss])
    assert success.success
    assert 0.9 <= success.value < 1
    before = (await play(task, plan[:-1])).value if len(plan) > 1 else 0.0
    for worse in ([miss], [miss, miss], [miss] * 9):
        reward = await play(task, [*plan[:-1], *worse])
        assert not reward.success
        assert reward.value < before
        before = reward.value
    if len(plan) > 1 and plan[0][0] != plan[1][0]:
        again = await play(task, [plan[0], plan[0]])
        assert again.value < (await play(task, [plan[0]])).value


@pytest.mark.parametrize(
    ("family", "without"),
    [
        ("cancel", "verify_identity"),
        ("cancel", "get_order"),
        ("refund", "verify_identity"),
        ("complaint", "verify_identity"),
        ("list_orders", "verify_identity"),
    ],
)
async def test_a_step_that_a_rule_asks_for_cannot_be_left_out(
    family: str, without: str
) -> None:
    task = task_of(family)
    plan = plan_of(task)
    left = [call for call in plan if call[0] != without]
    reward = await play(task, left)
    assert not reward.success
    assert reward.parts["rules"] < 0
    # Doing it right afterwards does not make the broken rule good.
    assert not (await play(task, [*left, *plan])).success


async def test_what_nobody_asked_for_is_damage() -> None:
    task = task_of("cancel")
    reward = await play(task, [*plan_of(task), ("escalate", {"reason": "x"})])
    assert not reward.success
    assert reward.parts["damage"] < 0


def listed_of(task: Task) -> list[tuple[str, dict[str, Any]]]:
    """Identify the customer and list their orders."""
    [customer, _, email, postcode] = task.initial_state["customers"][0]
    return [
        ("get_customer", {"email": email}),
        ("verify_identity", {"customer_id": customer, "postcode": postcode}),
        ("list_orders", {"customer_id": customer}),
    ]


@pytest.mark.parametrize(
    "family", ["address_too_late", "second_refund", "late_refund", "large_refund"]
)
async def test_an_order_may_be_looked_up_in_the_list(family: str) -> None:
    task = task_of(family)
    rest = [call for call in plan_of(task) if call[0] != "get_order"]
    reward = await play(task, [*listed_of(task), *rest])
    assert reward.success
    assert reward.value == pytest.approx(0.9)  # who it is need not be checked
    assert not (await play(task, [*listed_of(task)[:2], *rest])).success


async def test_many_looks_make_a_success_cheaper_and_guessing_ends_it() -> None:
    task = task_of("cancel")
    look = ("track_shipment", {"order_id": task.initial_state["orders"][0][0]})
    *before, last = plan_of(task)
    few = await play(task, [*before, *[look] * 6, last])
    more = await play(task, [*before, *[look] * 9, last])
    assert (few.success, more.success) == (True, True)
    assert 0.5 <= more.value < few.value < 0.9

    orders = [order[0] for order in task.initial_state["orders"]]
    wrong = [("get_order", {"order_id": f"{number}9"}) for number in orders]
    guessed = await play(task, [*(wrong * 9)[:9], *before, last])
    assert not guessed.success
