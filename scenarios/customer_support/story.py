"""Make up a task: names, a shop, a customer and a goal."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from agentgym.packs.kit.phrases import Forms, Phrases, read_pools, read_words, request
from agentgym.packs.kit.tasks import Draft, Scene, Step

from .environment import expected

_LETTERS = "ABCDEFGHJKLMNPRSTUVWXYZ"


@dataclass(frozen=True)
class SupportNames:
    """The names of one split.

    Attributes:
        domains: Domains of email addresses, without endings such as ``.com``.
        subjects: Subjects of complaints.
        numbers: Formats of order numbers. In a format, ``9`` stands for a digit, ``A``
            for a capital letter, and other characters for themselves.
    """

    first: tuple[str, ...]
    last: tuple[str, ...]
    domains: tuple[str, ...]
    products: tuple[str, ...]
    cities: tuple[str, ...]
    streets: tuple[str, ...]
    subjects: tuple[str, ...]
    numbers: tuple[str, ...]

    def words(self) -> frozenset[str]:
        """Return the words of all lists, except ``subjects`` and ``numbers``."""
        people = (*self.first, *self.last, *self.domains)
        return frozenset((*people, *self.products, *self.cities, *self.streets))

    def number(self, rng: Random) -> str:
        """Return a random order number in one of this split's formats."""
        made = ""
        for sign in rng.choice(self.numbers):
            if sign == "9":
                made += rng.choice("123456789" if not made else "0123456789")
            else:
                made += rng.choice(_LETTERS) if sign == "A" else sign
        return made


NAMES = {
    split: SupportNames(**words)
    for split, words in read_words(Path(__file__).with_name("names.toml")).items()
}


SupportScene = Scene[SupportNames]

_FORMS = (
    *("order", "vague", "vague_item", "identity"),
    *("tell", "tell_kind", "correct", "change", "more"),
)
_POOLS = read_pools(Path(__file__).parent / "wording")
FORMS: dict[str, Forms] = {name: _POOLS[name] for name in _FORMS}
"""Phrases of customers other than requests, by kind, e.g. for an answer."""
INTENTS = {name: Phrases(p) for name, p in _POOLS.items() if name not in _FORMS}
"""Requests of customers, by kind, e.g. to cancel an order."""


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
        known = [self.number, self.owner, self.status, self.total, self.days]
        return [*known, self.street, self.city]


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
        self.plan: list[Step] = []
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
        if self.rng.random() < 0.3:
            name = {"order": "order number"}.get(kind, kind)
            return self.draw("tell_kind", k=name, x=value)
        return self.draw("tell", x=value)

    def draw(self, form: str, **slots: str) -> str:
        """Return a random phrase of the kind ``form``, with ``slots`` filled in."""
        return self.scene.say(FORMS[form], **slots)

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
            return self.draw("order", n=order.number)
        self.needs.append("order")
        return self.draw("vague")

    def new_address(self) -> dict[str, Any]:
        """Return a random street and city."""
        return {
            "street": self.street(),
            "city": self.rng.choice(self.scene.names.cities),
        }

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
        self.do("get_customer", email=self.email)
        identity: dict[str, Any] = {
            "customer_id": self.customer,
            "postcode": self.postcode,
        }
        self.do("verify_identity", **identity)

    def about(
        self, intent: str, order: Order, *, verified: bool = True, **slots: str
    ) -> None:
        """Set a first message about an order; plan to look at the order."""
        text = self.ask(intent, order=self.number(order), **slots)
        self.open(text, verified=verified)
        self.do("get_order", order_id=order.number)

    def do(self, tool: str, *, request: int = 0, **args: Any) -> None:
        """Add a call to the plan (the calls of the shortest solution)."""
        self.plan.append(Step(tool, args, request=request))


def draft(
    story: Story,
    *,
    every_step: bool = False,
    refuse: bool = False,
    products: Sequence[Sequence[Any]] = (),
    **changed: Any,
) -> Draft:
    """Return the content of a task, made of a story.

    Args:
        story: The shop, the customer and the plan.
        every_step: Whether a success must make all calls of the plan. If False, only
            the final database counts.
        refuse: Whether the agent must change nothing and refuse the request. The calls
            of the plan then only find the reason.
        products: Name and stock of each product.
        changed: By table, the rows that a success adds; for ``orders``, new values of
            fields, by the order's number.
    """
    state: dict[str, Any] = {
        "customers": [[story.customer, story.person, story.email, story.postcode]],
        "products": [*products],
        "orders": [order.row() for order in story.orders],
        "items": [[o.number, name, n] for o in story.orders for name, n in o.items],
        "shipments": [[o.number, _shipment(o)] for o in story.orders],
        "refunds": [[o.number, o.total] for o in story.orders if o.refunded],
    }
    after = copy.deepcopy(story.orders)
    for order in after:
        for name, value in changed.get("orders", {}).get(order.number, {}).items():
            setattr(order, name, value)
    rows = {**state, **changed, "orders": [order.row() for order in after]}
    rows["refunds"] = state["refunds"] + changed.get("refunds", [])
    script = {"facts": story.facts, "needs": story.needs, "later": story.later}
    goal = {
        "plan": [
            {"tool": s.tool, "args": s.args, "request": s.request} for s in story.plan
        ],
        "every_step": every_step or refuse,
        "refuse": refuse,
        "state": expected(rows),
    }
    return Draft(story.text, {**state, "customer": script}, goal)


def _shipment(order: Order) -> str:
    sent = {"shipped": "in transit", "delivered": "delivered"}
    return sent.get(order.status, "not shipped yet")
