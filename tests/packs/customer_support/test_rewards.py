"""The reward: the outcome first; nothing for idling, flooding or guessing."""

from typing import Any

import pytest

from agentgym.core.task import Split, Task
from agentgym.packs.customer_support.families import FAMILIES
from agentgym.packs.customer_support.scenario import (
    CustomerSupportScenario,
)
from recipes.nano.customer_support_oracle import demonstrate, solve
from tests.some import some

from .conftest import Calls, Play

BY_NAME = {family.name: family for family in FAMILIES}
REFUSED = ("address_too_late", "second_refund", "wrong_postcode")


def task_of(family: str, index: int = 0, split: Split = Split.TRAIN) -> Task:
    return CustomerSupportScenario().make_task(BY_NAME[family], split, 0, index)


def plan_of(task: Task) -> list[tuple[str, dict[str, Any]]]:
    extra = {"escalate": {"reason": "x"}}
    return [(s.tool, {**s.args, **extra.get(s.tool, {})}) for s in solve(task)]


def everything(task: Task) -> Calls:
    """Call every tool on the first order, as if the request had not been read."""
    [customer, _, email, postcode] = task.initial_state["customers"][0]
    [number, *_] = task.initial_state["orders"][0]
    [_, item, _] = task.initial_state["items"][0]
    return [
        ("get_customer", {"email": email}),
        ("verify_identity", {"customer_id": customer, "postcode": postcode}),
        ("list_orders", {"customer_id": customer}),
        ("get_order", {"order_id": number}),
        ("track_shipment", {"order_id": number}),
        ("check_stock", {"product": item}),
        ("cancel_order", {"order_id": number}),
        ("return_item", {"order_id": number, "item": item}),
        ("refund_order", {"order_id": number, "amount": 1.0}),
        ("update_address", {"order_id": number, "street": "A 1", "city": "B"}),
        (
            "create_ticket",
            {"customer_id": customer, "subject": "x", "priority": "low"},
        ),
        ("escalate", {"reason": "x"}),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("split", list(Split))
async def test_the_oracle_always_succeeds(split: Split) -> None:
    tasks = CustomerSupportScenario().tasks(
        split, 21, len(FAMILIES) * 12, levels=(1, 2, 3)
    )
    for task in some(tasks):
        reward = (await demonstrate(task)).reward
        assert reward.success, task.id
        assert reward.value == 1.0
        assert reward.right_tool == reward.right_arguments == 1.0


@pytest.mark.parametrize("family", BY_NAME)
async def test_doing_nothing_earns_nothing(family: str, play: Play) -> None:
    reward = await play(task_of(family), [])
    assert not reward.success
    assert -0.05 <= reward.value <= 0


@pytest.mark.parametrize("family", BY_NAME)
async def test_calling_everything_earns_nothing(family: str, play: Play) -> None:
    for index in range(5):
        task = task_of(family, index)
        reward = await play(task, everything(task))
        assert not reward.success
        assert reward.value <= 0.05
        melted = reward.parts["progress"] + reward.parts["errors"]
        assert abs(melted) <= 0.05  # what is left to pay is for broken rules
        assert reward.value >= -0.4


@pytest.mark.parametrize("family", BY_NAME)
async def test_stopping_early_pays_less_than_the_next_step(
    family: str, play: Play
) -> None:
    task = task_of(family)
    plan = plan_of(task)
    values = [(await play(task, plan[:stop])).value for stop in range(len(plan) + 1)]
    assert values == sorted(set(values))
    assert values[-1] == 1.0
    assert values[-2] < 0.5


@pytest.mark.parametrize("family", BY_NAME)
async def test_a_failed_try_of_the_next_step_pays_more_than_stopping(
    family: str, play: Play
) -> None:
    task = task_of(family)
    plan = plan_of(task)
    for done, (tool, arguments) in enumerate(plan):
        wrong = [(tool, {**arguments, "nonsense": "x"})]
        before = (await play(task, plan[:done])).value
        assert (await play(task, plan[:done] + wrong)).value > before


@pytest.mark.parametrize("family", BY_NAME)
async def test_failed_and_repeated_calls_cost_and_leave_success_its_share(
    family: str, play: Play
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


@pytest.mark.parametrize("family", REFUSED)
async def test_a_refusal_without_the_look_up_is_no_success(
    family: str, play: Play
) -> None:
    reward = await play(task_of(family), [("check_stock", {"product": "x"})])
    assert not reward.success


async def test_an_escalation_without_the_look_up_is_no_success(play: Play) -> None:
    for family in ("late_refund", "large_refund"):
        reward = await play(task_of(family), [("escalate", {"reason": "x"})])
        assert not reward.success


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
    family: str, without: str, play: Play
) -> None:
    task = task_of(family)
    plan = plan_of(task)
    left = [call for call in plan if call[0] != without]
    reward = await play(task, left)
    assert not reward.success
    assert reward.parts["rules"] < 0
    # Doing it right afterwards does not make the broken rule good.
    assert not (await play(task, [*left, *plan])).success


async def test_rows_may_come_in_any_order_and_case(play: Play) -> None:
    task = task_of("complaint")
    plan = plan_of(task)
    name, arguments = plan[-1]
    loud = {**arguments, "subject": arguments["subject"].upper() + "."}
    assert (await play(task, [*plan[:-1], (name, loud)])).value == 1.0
    wrong = {**arguments, "subject": "something else"}
    assert not (await play(task, [*plan[:-1], (name, wrong)])).success


async def test_what_nobody_asked_for_is_damage(play: Play) -> None:
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
async def test_an_order_may_be_looked_up_in_the_list(family: str, play: Play) -> None:
    task = task_of(family)
    rest = [call for call in plan_of(task) if call[0] != "get_order"]
    reward = await play(task, [*listed_of(task), *rest])
    assert reward.success
    assert reward.value == pytest.approx(0.9)  # who it is need not be checked
    assert not (await play(task, [*listed_of(task)[:2], *rest])).success


async def test_a_list_counts_as_the_look_up_on_the_way(play: Play) -> None:
    task = task_of("cancel")
    listed = listed_of(task)
    before = await play(task, listed[:2])
    reward = await play(task, listed)
    assert (before.right_arguments, reward.right_arguments) == (0.5, 0.75)
    assert reward.right_tool == 0.75
    assert reward.value > before.value
    # Looking twice is no progress.
    twice = await play(task, [*listed, plan_of(task)[2]])
    assert twice.right_arguments == 0.75
    assert twice.value <= reward.value


async def test_many_looks_make_a_success_cheaper_and_guessing_ends_it(
    play: Play,
) -> None:
    task = task_of("cancel")
    stock = ("check_stock", {"product": task.initial_state["items"][0][1]})
    *before, last = plan_of(task)
    few = await play(task, [*before, *[stock] * 6, last])
    more = await play(task, [*before, *[stock] * 9, last])
    assert (few.success, more.success) == (True, True)
    assert 0.5 <= more.value < few.value < 0.9

    orders = [order[0] for order in task.initial_state["orders"]]
    wrong = [("get_order", {"order_id": f"{number}9"}) for number in orders]
    guessed = await play(task, [*(wrong * 9)[:9], *before, last])
    assert not guessed.success


async def test_items_may_come_back_one_by_one(play: Play) -> None:
    tasks = (task_of("cancel_too_late", index) for index in range(50))
    task = next(t for t in tasks if t.goal["state"]["returns"][0][2] == 2)
    *plan, (tool, arguments) = plan_of(task)
    single = (tool, {**arguments, "quantity": 1})
    reward = await play(task, [*plan, single, single])
    assert reward.success
    assert 0.9 <= reward.value < 1
    assert not (await play(task, [*plan, single])).success
