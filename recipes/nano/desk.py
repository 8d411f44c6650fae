"""A mini support shop for the gate: eight tools over a few orders in memory."""

import random
from typing import Any, ClassVar, Literal

from agentgym.core.task import Split, Task
from agentgym.core.tools import ToolSpec, tool, tool_specs
from agentgym.core.trajectory import Reward, Trajectory
from agentgym.errors import ToolError
from agentgym.scenarios.base import Environment, Scenario
from recipes.nano import pools
from recipes.nano.values import email, value, word

REQUESTS = {
    "get_order": ("show me order {o}", "what is in {o}", "give me the details of {o}"),
    "track_shipment": ("where is order {o}", "track {o}", "has {o} been shipped"),
    "cancel_order": ("cancel order {o}", "please call off {o}", "stop order {o}"),
    "refund_order": (
        "refund {o}, {a} euros",
        "pay back {a} for order {o}",
        "i want my money back for {o}: {a}",
    ),
    "return_item": (
        "i want to return the {i} from {o}",
        "take back the {i} of order {o}",
    ),
    "update_address": (
        "send order {o} to {s} in {c}",
        "change the address of {o} to {s}, {c}",
    ),
    "get_customer": ("look up the customer {m}", "who is {m}"),
    "apply_coupon": ("use {k} on order {o}", "apply the coupon {k} to {o}"),
}
ITEMS = ("lamp", "chair", "jacket", "phone", "kettle", "bike")


class Desk(Environment):
    """One episode's orders and what was done to them."""

    def __init__(self, orders: dict[str, Any]) -> None:
        self.orders = orders
        self.done: list[list[str]] = []

    @tool
    def get_customer(self, email: str) -> str:
        """Find a customer by email."""
        return self._record("get_customer", email)

    @tool
    def get_order(self, order_id: str) -> str:
        """Get an order."""
        return self._record("get_order", self._known(order_id))

    @tool
    def track_shipment(self, order_id: str) -> str:
        """Track a shipment."""
        return self._record("track_shipment", self._known(order_id))

    @tool
    def cancel_order(self, order_id: str, reason: str | None = None) -> str:
        """Cancel an order."""
        return self._record("cancel_order", self._known(order_id))

    @tool
    def refund_order(self, order_id: str, amount: float) -> str:
        """Refund an order."""
        return self._record("refund_order", self._known(order_id), f"{amount:.2f}")

    @tool
    def return_item(self, order_id: str, item: str) -> str:
        """Start the return of an item."""
        return self._record("return_item", self._known(order_id), item)

    @tool
    def update_address(self, order_id: str, street: str, city: str) -> str:
        """Change the delivery address of an order."""
        return self._record("update_address", self._known(order_id), street, city)

    @tool
    def apply_coupon(self, order_id: str, code: str) -> str:
        """Apply a coupon to an order."""
        return self._record("apply_coupon", self._known(order_id), code)

    def _known(self, order_id: str) -> str:
        if order_id not in self.orders:
            raise ToolError(f"there is no order {order_id}.")
        return order_id

    def _record(self, *call: str) -> str:
        self.done.append(list(call))
        return "ok"


class DeskScenario(Scenario):
    """One request, one right call; looking at the order first is fine."""

    name: ClassVar[str] = "desk"
    description: ClassVar[str] = "A mini support shop."
    difficulty: ClassVar[Literal["beginner", "intermediate", "advanced"]] = "beginner"
    estimated_time: ClassVar[str] = "seconds"
    max_turns: ClassVar[int] = 5

    def system_prompt(self) -> str:
        """Return the role."""
        return "You help customers of the shop."

    def tools(self) -> list[ToolSpec]:
        """Return the eight tools."""
        return tool_specs(Desk)

    def tasks(self, split: Split, seed: int, count: int) -> list[Task]:
        """Return tasks, one tool after the other; there is one wording."""
        kinds = sorted(REQUESTS)
        return [self._task(split, seed, i, kinds[i % len(kinds)]) for i in range(count)]

    def _task(self, split: Split, seed: int, index: int, kind: str) -> Task:
        rng = random.Random(f"desk/{split}/{seed}/{index}")
        orders = [f"ord_{rng.randint(100, 9999)}" for _ in range(3)]
        facts = {
            "o": orders[0],
            "a": f"{rng.uniform(5, 300):.2f}",
            "i": rng.choice(ITEMS),
            "s": f"{word(rng).capitalize()} {rng.randint(1, 99)}",
            "c": rng.choice(pools.CITIES),
            "m": email(rng),
            "k": value(rng, "code"),
        }
        wanted = {"get_customer": "m", "refund_order": "oa", "return_item": "oi"}
        wanted |= {"update_address": "osc", "apply_coupon": "ok"}
        call = [kind, *(facts[key] for key in wanted.get(kind, "o"))]
        return Task(
            id=f"desk/{split}/{seed}/{index}",
            split=split,
            seed=seed,
            family=kind,
            level=1,
            instruction=rng.choice(REQUESTS[kind]).format(**facts),
            initial_state={"orders": dict.fromkeys(orders, "pending")},
            goal={"plan": [{"tool": kind, "args": {}, "others": []}], "call": call},
        )

    def create_environment(self, task: Task) -> Desk:
        """Return a fresh desk."""
        return Desk(dict(task.initial_state["orders"]))

    def calculate_reward(
        self, task: Task, environment: Environment, trajectory: Trajectory
    ) -> Reward:
        """Succeed if the asked call was made, and nothing else was changed."""
        assert isinstance(environment, Desk)
        wanted = task.goal["call"]
        harmless = ("get_order", "get_customer")
        other = [c for c in environment.done if c != wanted and c[0] not in harmless]
        success = wanted in environment.done and not other
        return Reward(float(success), success)
