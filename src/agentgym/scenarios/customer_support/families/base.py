"""The base of all families (kinds of task): a shop, a customer, and a goal."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal

from agentgym.core.task import Split
from agentgym.scenarios.customer_support.database import expected
from agentgym.scenarios.customer_support.names import NAMES, SupportNames
from agentgym.scenarios.customer_support.wording import INTENTS, talk
from agentgym.scenarios.wording.grammar import request

Level = Literal[1, 2, 3]


@dataclass(frozen=True)
class SupportStep:
    """One call of the shortest solution.

    Attributes:
        tool: Name of the tool.
        args: The arguments that matter; others may have any value.
        request: Number of the customer's request that this call serves, from 0.
    """

    tool: str
    args: dict[str, Any] = field(default_factory=dict)
    request: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the step as JSON for a task's goal."""
        return {"tool": self.tool, "args": self.args, "request": self.request}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "SupportStep":
        """Parse the JSON of :meth:`to_json`."""
        return cls(data["tool"], data["args"], data["request"])


@dataclass(frozen=True)
class SupportScene:
    """The inputs from which a family creates a draft (the content of a task).

    Attributes:
        rng: Source of random choices.
        split: The split whose words and wordings are used.
    """

    rng: Random
    split: Split

    @property
    def names(self) -> SupportNames:
        """The names of the split."""
        return NAMES[self.split]


@dataclass
class Order:
    """An order of the shop."""

    number: str
    owner: str
    status: str
    total: float
    days: int | None
    items: list[tuple[str, int]]
    street: str
    city: str
    refunded: bool = False

    def row(self) -> list[Any]:
        """Return the order as a row of the table ``orders``."""
        return [
            self.number,
            self.owner,
            self.status,
            self.total,
            self.days,
            self.street,
            self.city,
        ]


class Story:
    """A task under construction: the shop, its customer, the script and the plan."""

    def __init__(self, scene: SupportScene) -> None:
        self.scene = scene
        self.rng = rng = scene.rng
        names = scene.names
        first, last = rng.choice(names.first), rng.choice(names.last)
        self.person = f"{first} {last}"
        ending = rng.choice((f".{last}", f"_{last}", str(rng.randint(1, 99)), ""))
        domain = f"{rng.choice(names.domains)}.{rng.choice(('com', 'org', 'net'))}"
        self.email = f"{first}{ending}@{domain}".lower()
        self.customer = f"cus_{rng.randint(10, 9999)}"
        self.postcode = str(rng.randint(1000, 99999))
        self.plan: list[SupportStep] = []
        self.facts: dict[str, list[str]] = {
            "email": [self.say("email", self.email)],
            "postcode": [self.say("postcode", self.postcode)],
        }
        self.needs: list[str] = []
        self.later: list[str] = []
        self.text = ""
        self.used: set[str] = set()
        self.orders: list[Order] = []
        for _ in range(rng.randint(2, 3)):
            self.add_order(rng.choice(("pending", "processing", "delivered")))

    def say(self, kind: str, value: str) -> str:
        """Return the customer's answer to a question about a fact, e.g. the email."""
        return talk.fact(self.rng, self.scene.split, kind, value)

    def draw(self, form: str, **slots: str) -> str:
        """Return a random phrase of the kind ``form``, its placeholders filled."""
        return talk.say(self.rng, self.scene.split, form, **slots)

    def add_order(self, status: str, **fields: Any) -> Order:
        """Add an order; fields that are not in ``fields`` get random values."""
        rng, names = self.rng, self.scene.names
        free = [p for p in names.products if p not in self.used]
        items = rng.sample(free, rng.randint(1, 2))
        number = names.number(rng)
        while number in {order.number for order in self.orders}:
            number = names.number(rng)
        self.used |= set(items)
        settings: dict[str, Any] = {
            "number": number,
            "owner": self.customer,
            "status": status,
            "total": round(rng.uniform(5, 199), 2),
            "days": rng.randint(1, 30) if status == "delivered" else None,
            "items": [(item, 1) for item in items],
            "street": self.street(),
            "city": rng.choice(names.cities),
        }
        order = Order(**(settings | fields))
        self.orders.append(order)
        return order

    def street(self) -> str:
        """Return a random street with a house number."""
        name = self.rng.choice(self.scene.names.streets)
        return f"{name} {self.rng.randint(1, 99)}"

    def number(self, order: Order, *, stated: float = 0.7) -> str:
        """Return a phrase that refers to an order.

        With the probability ``stated``, it contains the order's number. Otherwise the
        customer gives the number only when asked.
        """
        self.facts["order"] = [self.say("order", order.number)]
        if self.rng.random() < stated:
            return talk.order(self.rng, self.scene.split, order.number)
        self.needs.append("order")
        return self.draw("vague")

    def ask(self, intent: str, **slots: str) -> str:
        """Return a random request of the kind ``intent``, its placeholders filled."""
        return request(self.rng, INTENTS[intent], self.scene.split, slots)

    def open(self, text: str, *, verified: bool = False) -> None:
        """Set the first message; with ``verified``, plan to verify the customer."""
        if not verified:
            self.text = text
            return
        if self.rng.random() < 0.35:
            about = self.draw("identity", m=self.email, p=self.person)
            text = f"{text} {about}." if self.rng.random() < 0.7 else f"{about}. {text}"
        else:
            self.needs.append("email")
        self.needs.append("postcode")
        self.text = text
        self.plan += [
            SupportStep("get_customer", {"email": self.email}),
            SupportStep(
                "verify_identity",
                {"customer_id": self.customer, "postcode": self.postcode},
            ),
        ]

    def do(self, tool: str, *, request: int = 0, **args: Any) -> None:
        """Add a call to the plan."""
        self.plan.append(SupportStep(tool, args, request))


@dataclass(frozen=True)
class SupportDraft:
    """The content of a task, before it gets an id.

    Attributes:
        instruction: The customer's first message.
        state: The shop and the customer's script.
        plan: The calls of the shortest solution.
        every_step: Whether all calls of the plan are required; otherwise only the final
            state counts.
        refuse: Whether nothing may be changed, and the plan only shows why.
        goal_state: The expected final rows of the database.
    """

    instruction: str
    state: dict[str, Any]
    plan: tuple[SupportStep, ...]
    every_step: bool
    refuse: bool
    goal_state: dict[str, Any]

    def goal(self) -> dict[str, Any]:
        """Return the goal of the task as JSON values."""
        return {
            "plan": [step.to_json() for step in self.plan],
            "every_step": self.every_step,
            "refuse": self.refuse,
            "state": self.goal_state,
        }


def draft(
    story: Story,
    *,
    every_step: bool = False,
    refuse: bool = False,
    products: list[list[Any]] | None = None,
    **changed: Any,
) -> SupportDraft:
    """Create a draft from a story.

    Args:
        story: The finished story, with its orders in the initial state.
        every_step: See :class:`SupportDraft`.
        refuse: See :class:`SupportDraft`; True implies ``every_step``.
        products: Rows of the stock table; None for an empty table.
        changed: Rows that the goal adds to each table. For ``orders``, the changed
            fields of each order, by its number.
    """
    state: dict[str, Any] = {
        "customers": [[story.customer, story.person, story.email, story.postcode]],
        "products": products or [],
        "orders": [order.row() for order in story.orders],
        "items": [[o.number, name, n] for o in story.orders for name, n in o.items],
        "shipments": [[o.number, _shipment(o)] for o in story.orders],
        "refunds": [[o.number, o.total] for o in story.orders if o.refunded],
    }
    after = copy.deepcopy(story.orders)
    for order in after:
        for name, value in changed.get("orders", {}).get(order.number, {}).items():
            setattr(order, name, value)
    goal = {**state, **changed, "orders": [order.row() for order in after]}
    goal["refunds"] = state["refunds"] + changed.get("refunds", [])
    script = {"facts": story.facts, "needs": story.needs, "later": story.later}
    return SupportDraft(
        story.text,
        {**state, "customer": script},
        tuple(story.plan),
        every_step or refuse,
        refuse,
        expected(goal),
    )


def _shipment(order: Order) -> str:
    return {
        "shipped": "in transit",
        "delivered": "delivered",
    }.get(order.status, "not shipped yet")


@dataclass(frozen=True)
class SupportFamily:
    """One kind of task.

    Attributes:
        name: Name of the family.
        level: Difficulty from 1 to 3.
        draft: Creates the content of a task.
    """

    name: str
    level: Level
    draft: Callable[[SupportScene], SupportDraft]
