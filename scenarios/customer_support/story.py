"""Base classes of the families (kinds of task): a shop, a customer and a goal."""

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Literal

from agentgym.core.task import Split, Task
from agentgym.packs.kit.phrases import request

from . import talk
from .database import expected
from .names import NAMES, SupportNames
from .talk import INTENTS

Level = Literal[1, 2, 3]


@dataclass(frozen=True)
class SupportStep:
    """One call of a task's shortest solution; arguments not in ``args`` may vary."""

    tool: str
    args: dict[str, Any] = field(default_factory=dict)
    request: int = 0

    def to_json(self) -> dict[str, Any]:
        """Return the step as JSON values, for the goal of a task."""
        return {"tool": self.tool, "args": self.args, "request": self.request}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> "SupportStep":
        """Create a step from the JSON values that :meth:`to_json` returned."""
        return cls(data["tool"], data["args"], data["request"])


@dataclass(frozen=True)
class SupportScene:
    """The inputs from which a family (kind of task) creates the content of a task."""

    rng: Random
    split: Split

    @property
    def names(self) -> SupportNames:
        """Names of people, places and products for this split."""
        return NAMES[self.split]


@dataclass
class Order:
    """An order of the shop.

    Attributes:
        total: The price of the whole order.
        days: Days since the delivery; None if it is not delivered.
        items: Name and quantity of each product.
    """

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
    """The content of a task under construction; :func:`draft` completes it.

    A new story has a random customer with two or three orders.
    """

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
        """Return a random answer of the customer that gives a fact, e.g. the email."""
        return talk.fact(self.rng, self.scene.split, kind, value)

    def draw(self, form: str, **slots: str) -> str:
        """Return a random phrase of the kind ``form``, with ``slots`` filled in."""
        return talk.say(self.rng, self.scene.split, form, **slots)

    def add_order(self, status: str, **fields: Any) -> Order:
        """Add an order of the customer; fields not in ``fields`` get random values."""
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
        """Return a random street name with a house number."""
        name = self.rng.choice(self.scene.names.streets)
        return f"{name} {self.rng.randint(1, 99)}"

    def number(self, order: Order, *, stated: float = 0.7) -> str:
        """Return a phrase for an order; its number is stated, or given when asked."""
        self.facts["order"] = [self.say("order", order.number)]
        if self.rng.random() < stated:
            return talk.order(self.rng, self.scene.split, order.number)
        self.needs.append("order")
        return self.draw("vague")

    def ask(self, intent: str, **slots: str) -> str:
        """Return a random request, e.g. for a ``refund``, with ``slots`` filled in."""
        return request(self.rng, INTENTS[intent], self.scene.split, slots)

    def open(self, text: str, *, verified: bool = False) -> None:
        """Set the customer's first message; if ``verified``, plan to verify them."""
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
        """Add a call to the plan (the calls of the shortest solution)."""
        self.plan.append(SupportStep(tool, args, request))


@dataclass(frozen=True)
class SupportDraft:
    """The content of a task, before it gets an id.

    Attributes:
        every_step: Whether a success must make all calls of ``plan``. If False, only
            the final database counts.
        refuse: Whether the agent must change nothing and refuse the request. The calls
            of ``plan`` then only find the reason.
    """

    instruction: str
    state: dict[str, Any]
    plan: tuple[SupportStep, ...]
    every_step: bool
    refuse: bool
    goal_state: dict[str, Any]

    def goal(self) -> dict[str, Any]:
        """Return the task's goal as JSON values."""
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
    """Create the content of a task from a story."""
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
    """One kind of task."""

    name: str
    level: Level
    draft: Callable[[SupportScene], SupportDraft]

    def make_task(self, split: Split, seed: int, index: int) -> Task:
        """Return the ``index``-th task of this kind, the same for equal arguments."""
        identity = f"{split}/{self.name}/{seed}/{index}"
        draft = self.draft(SupportScene(Random(identity), split))
        return Task(
            id=identity,
            split=split,
            seed=seed,
            family=self.name,
            level=self.level,
            instruction=draft.instruction,
            initial_state=draft.state,
            goal=draft.goal(),
        )
