"""The shop: rules, look-ups, and whose mistake a missing order is."""

import math
from typing import Any

import pytest

from agentgym.errors import RuleViolation, ToolError
from agentgym.packs.customer_support.environment import SupportEnvironment


def shop(said: str = "", *, enforce: bool = True) -> SupportEnvironment:
    state: dict[str, Any] = {
        "customers": [
            ["cus_1", "Ada Berg", "ada@flint.io", "1234"],
            ["cus_2", "Bo Dahl", "bo@flint.io", "9999"],
        ],
        "products": [["lamp", 3]],
        "orders": [
            ["10", "cus_1", "pending", 20.0, None, "Oak 1", "Oslo"],
            ["11", "cus_1", "shipped", 20.0, None, "Oak 1", "Oslo"],
            ["12", "cus_1", "delivered", 20.5, 30, "Oak 1", "Oslo"],
            ["13", "cus_1", "delivered", 20.0, 31, "Oak 1", "Oslo"],
            ["14", "cus_1", "delivered", 200.01, 3, "Oak 1", "Oslo"],
            ["20", "cus_2", "pending", 20.0, None, "Oak 2", "Oslo"],
        ],
        "items": [["11", "mug", 2], ["12", "lamp", 1]],
        "shipments": [["10", "not shipped yet"]],
        "refunds": [],
        "customer": {"facts": {}, "needs": [], "later": []},
    }
    return SupportEnvironment(state, said, enforce_rules=enforce)


def verified() -> SupportEnvironment:
    opened = shop()
    assert opened.verify_identity("cus_1", "1234") == "verified"
    opened.list_orders("cus_1")
    return opened


def test_nothing_personal_before_the_identity_is_checked() -> None:
    opened = shop("my postcode is 9999")
    for call in (
        lambda: opened.list_orders("cus_1"),
        lambda: opened.cancel_order("10"),
        lambda: opened.create_ticket("cus_1", "x", "low"),
    ):
        with pytest.raises(RuleViolation, match="verify"):
            call()
    assert "not verified" in opened.verify_identity("cus_1", "9999")
    with pytest.raises(RuleViolation, match="verify"):
        opened.list_orders("cus_1")
    assert len(opened.books.violations) == 4


def test_an_order_is_looked_at_first() -> None:
    opened = shop()
    opened.verify_identity("cus_1", "1234")
    with pytest.raises(RuleViolation, match="look at"):
        opened.cancel_order("10")
    opened.get_order("10")
    assert opened.cancel_order("10") == "10 cancelled"


def test_only_what_has_not_shipped_is_cancelled_and_only_what_has_comes_back() -> None:
    opened = verified()
    with pytest.raises(RuleViolation, match="shipped"):
        opened.cancel_order("11")
    with pytest.raises(RuleViolation, match="shipped"):
        opened.update_address("11", "Oak 3", "Oslo")
    with pytest.raises(RuleViolation, match="pending"):
        opened.return_item("10", "lamp")
    assert opened.return_item("11", "Mug", 2) == "return started"
    with pytest.raises(ToolError, match="no 1 mug"):
        opened.return_item("11", "mug")


def test_refunds_are_for_delivered_orders_once_in_time_and_not_too_large() -> None:
    opened = verified()
    for number, reason in (
        ("10", "not delivered"),
        ("13", "31 days"),
        ("14", "more than 200"),
    ):
        with pytest.raises(RuleViolation, match=reason):
            opened.refund_order(number, 20.0)
    with pytest.raises(ToolError, match="total"):
        opened.refund_order("12", 20.0)
    assert opened.refund_order("12", 20.5) == "refunded"
    assert '"refunded": "yes"' in opened.get_order("12")
    with pytest.raises(RuleViolation, match="refunded before"):
        opened.refund_order("12", 20.5)
    assert opened.end_state()["refunds"] == [["12", 20.5]]


def test_a_number_that_the_customer_made_up_is_not_the_agents_mistake() -> None:
    told = shop("cancel order 77, please")
    assert told.get_order("77") == "error: there is no order 77."
    assert not told.books.errors
    with pytest.raises(ToolError, match="no order 78"):
        told.get_order("78")
    assert len(told.books.errors) == 1


@pytest.mark.parametrize("key", ["", " ", "a", "7", "77", "cel", ".", ", "])
def test_a_part_of_what_was_said_is_no_number(key: str) -> None:
    told = shop("cancel a 7, no: order 177, please")
    for look_up in (
        told.get_order,
        told.track_shipment,
        told.get_customer,
        told.check_stock,
    ):
        with pytest.raises(ToolError, match="there is no"):
            look_up(key)
    assert len(told.books.errors) == 4


@pytest.mark.parametrize("amount", [math.nan, math.inf, -20.5, 20.51])
def test_no_other_amount_is_refunded(amount: float) -> None:
    opened = verified()
    with pytest.raises(ToolError, match="total"):
        opened.refund_order("12", amount)
    assert opened.end_state()["refunds"] == []
