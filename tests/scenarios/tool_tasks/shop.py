"""Tools that somebody already has: they must not run unless that was allowed."""

import json
from pathlib import Path
from typing import Any

SOURCE = '''
from typing import Literal

import numpy

from agentgym import tool

CALLS = []


def track_order(order_id: int) -> dict[str, str]:
    """Say where an order is.

    Args:
        order_id: Of the order.
    """
    CALLS.append(("track_order", order_id))
    return {"status": "live"}


@tool
def cancel_order(order_id: int, reason: str = "") -> str:
    """Cancel an order."""
    CALLS.append(("cancel_order", order_id))
    raise RuntimeError("it was sent already")


State = Literal["open", "all"]


async def list_orders(customer: str, state: State = "all") -> list[int]:
    """List a customer's orders."""
    CALLS.append(("list_orders", customer))
    return [1, 2]


def refund(order_id: int, amount: float) -> str:
    """Pay back a part of an order."""
    CALLS.append(("refund", order_id))
    return "paid"


TOOLS = [track_order, cancel_order, list_orders, refund]


def check(task, calls, state):
    assert set(state) == {"missed", "answer", "agent"}
    return any(call.name == "track_order" for call in calls)


def half(task, calls, state):
    return 0.5


def wild(task, calls, state):
    return 7

def numpy_half(task, calls, state):
    return numpy.float32(0.5)

def no_state(task, calls):
    return True

async def later(task, calls, state):
    return True
'''

CUSTOMERS = ("Anna", "Bob", "Chen", "Dora", "Emil", "Fay", "Gus", "Hana", "Ivo", "Jun")


def lines() -> list[dict[str, Any]]:
    """Return thirty requests of three kinds."""
    made: list[dict[str, Any]] = []
    for number, name in enumerate(CUSTOMERS):
        order = 4100 + 37 * number
        track = {"tool": "track_order", "args": {"order_id": order}}
        made.append(
            {
                "instruction": f"Where is my order {order}?",
                "expect": [{**track, "answer": {"status": "sent"}}],
            }
        )
        made.append(
            {
                "instruction": f"Please list everything that {name} has ordered.",
                "expect": [{"tool": "list_orders", "args": {"customer": name}}],
                "forbid": ["refund"],
            }
        )
        later = {"order_id": order + 9000}
        free = {**later, "reason": {"anything": True}}
        made.append(
            {
                "instruction": f"Check on order {order + 9000} and then call it off.",
                "expect": [
                    {"tool": "track_order", "args": later},
                    {"tool": "cancel_order", "args": free},
                ],
            }
        )
    return made


def write(path: Path, made: list[dict[str, Any]]) -> Path:
    """Write a tasks file."""
    path.write_text("".join(json.dumps(line) + "\n" for line in made))
    return path
