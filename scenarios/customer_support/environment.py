"""A shop and a customer: the database, the agent's tools and its rules."""

import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Literal

from agentgym.errors import ToolError
from agentgym.packs.kit.environment import Database, RecordingEnvironment, recorded

Row = list[Any]
State = Mapping[str, Sequence[Row]]

_SCHEMA = """
CREATE TABLE customers (id TEXT PRIMARY KEY, name TEXT, email TEXT, postcode TEXT);
CREATE TABLE products (name TEXT PRIMARY KEY, stock INTEGER);
CREATE TABLE orders (
    id TEXT PRIMARY KEY, customer_id TEXT, status TEXT, total REAL,
    delivered_days_ago INTEGER, street TEXT, city TEXT);
CREATE TABLE items (order_id TEXT, name TEXT, quantity INTEGER);
CREATE TABLE shipments (order_id TEXT PRIMARY KEY, state TEXT);
CREATE TABLE refunds (order_id TEXT, amount REAL, id INTEGER PRIMARY KEY);
CREATE TABLE returns (
    order_id TEXT, item TEXT, quantity INTEGER, PRIMARY KEY (order_id, item));
CREATE TABLE tickets (
    customer_id TEXT, subject TEXT, priority TEXT, id INTEGER PRIMARY KEY);
CREATE TABLE escalations (reason TEXT, id INTEGER PRIMARY KEY);
"""

_FILLED = ("customers", "products", "orders", "items", "shipments", "returns")
_NUMBERED = ("refunds", "tickets", "escalations")
"""Tables whose last column is an id that SQLite gives."""

_CHANGING = {
    "orders": "id, customer_id, status, street, city",
    "refunds": "order_id, round(amount, 2)",
    "returns": "order_id, item, quantity",
    "tickets": "customer_id, subject, priority",
    "escalations": "1",
}
"""Columns that are compared with the goal, by table; no generated ids or texts."""


def open_database(state: State) -> Database:
    """Return a new database with the given rows, by table."""
    tables = {table: state.get(table, ()) for table in _FILLED}
    numbered = {t: [[*row, None] for row in state.get(t, ())] for t in _NUMBERED}
    return Database(_SCHEMA, {**tables, **numbered})


def snapshot(database: Database) -> dict[str, list[Row]]:
    """Return the rows that are compared with a task's goal, by table and sorted."""
    return {
        table: sorted(
            [_plain(value) for value in row.values()]
            for row in database.rows(f"SELECT {columns} FROM {table}")
        )
        for table, columns in _CHANGING.items()
    }


def expected(state: State) -> dict[str, list[Row]]:
    """Return the :func:`snapshot` that a database with these rows would give."""
    database = open_database(state)
    try:
        return snapshot(database)
    finally:
        database.close()


def _plain(value: object) -> object:
    """Return a text in lower case without outer punctuation; keep other values."""
    return value.strip(" .,!?\"'").casefold() if isinstance(value, str) else value


KEYWORDS = {
    "email": ("mail",),
    "postcode": ("postcode", "post code", "postal", "zip"),
    "order": ("order", "purchase", "number"),
    "item": ("item", "product", "article"),
    "address": ("address", "street", "city", "where to"),
    "subject": ("subject", "complain", "about", "problem", "happened"),
    "priority": ("priority", "urgen", "important"),
}
"""Parts of words by which a question about each kind of fact is recognised."""

_QUESTION = re.compile(
    r"\?|^\s*(what|which|who|where|how|when)\b|\b(please|tell me|give me|i need)\b"
)
_CLOSING = re.compile(
    r"\belse\b|\b(any|anything|something) (more|further)\b"
    r"|\b(more|further|other|another) (help|assist|question|request)"
    r"|\bif you (need|want|have) any|\bthat (all|everything)\b"
)
"""Phrases with which an agent asks whether there is anything else."""

_MOST_ANSWERS = 2


class Customer:
    """A scripted customer for one episode.

    Args:
        facts: Answers to questions, by kind of fact. To a repeated question, the
            customer gives the next answer, or else the last one again.
        needs: Kinds of facts that the agent needs but that the customer's first message
            does not contain, in the order of need.
        later: Further requests. The customer sends the next one when the agent knows
            all needed facts and asks for nothing that the customer can answer.
    """

    def __init__(
        self,
        facts: Mapping[str, Sequence[str]],
        needs: Sequence[str],
        later: Sequence[str],
    ) -> None:
        self._facts = facts
        self._open = list(needs)
        self._later = list(later)
        self._given: Counter[str] = Counter()
        self._puzzled = False

    def reply(self, message: str) -> str | None:
        """Return the reply to a message of the agent; None ends the conversation."""
        said = message.lower()
        kinds = [k for k, words in KEYWORDS.items() if any(w in said for w in words)]
        if not self._open and _CLOSING.search(said):
            return self._next_request()
        if not _QUESTION.search(said):
            return self._after_statement(kinds)
        if "email" in kinds and "address" in kinds:
            kinds.remove("address")  # "your email address"
        known = [kind for kind in kinds if kind in self._facts]
        if not known:
            if self._open:
                return self._state(self._open[0])
            if self._later:
                return self._later.pop(0)
            return self._puzzle("i do not know.") if kinds else None
        answers = [text for kind in known[:2] if (text := self._state(kind))]
        return ", ".join(answers) or self._next_request()

    def _state(self, kind: str) -> str | None:
        if kind in self._open:
            self._open.remove(kind)
        if self._given[kind] >= _MOST_ANSWERS:
            return None
        texts = self._facts[kind]
        text = texts[min(self._given[kind], len(texts) - 1)]
        self._given[kind] += 1
        return text

    def _after_statement(self, kinds: Sequence[str]) -> str | None:
        """Return a needed fact that a statement mentions, "sorry?", or a request."""
        about = [kind for kind in kinds if kind in self._open]
        if about:
            return self._state(about[0])
        if self._open:
            return self._puzzle("sorry?")
        return self._next_request()

    def _next_request(self) -> str | None:
        """Return the customer's next request; None if there are no more."""
        return self._later.pop(0) if self._later else None

    def _puzzle(self, text: str) -> str | None:
        """Return ``text`` at the first call, and None at later calls."""
        if self._puzzled:
            return None
        self._puzzled = True
        return text


REFUND_DAYS = 30
MOST_REFUND = 200
UNSHIPPED = ("pending", "processing")
SENT = ("shipped", "delivered")


class SupportEnvironment(RecordingEnvironment):
    """A shop's database with tools for its help desk, and a customer with a request."""

    def __init__(
        self, state: Mapping[str, Any], instruction: str, *, enforce_rules: bool = True
    ) -> None:
        super().__init__(enforce_rules=enforce_rules)
        self._database = open_database(state)
        script = state["customer"]
        self._customer = Customer(**script)
        wording = [text for texts in script["facts"].values() for text in texts]
        self._script = "\n".join([instruction, *wording, *script["later"]])
        self._verified: str | None = None
        self._seen: set[str] = set()

    def user_reply(self, message: str) -> str | None:
        """Return the customer's reply to an answer; None ends the conversation."""
        return self._customer.reply(message)

    def end_state(self) -> dict[str, list[list[Any]]]:
        """Return the database rows that are compared with a task's goal, by table."""
        return snapshot(self._database)

    def close(self) -> None:
        """Close the database in memory, which deletes it."""
        self._database.close()

    @recorded
    def get_customer(self, email: str) -> str:
        """Find a customer by email."""
        row = self._database.row(
            "SELECT id AS customer_id, name FROM customers WHERE lower(email) = ?",
            email.strip().lower(),
        )
        return json.dumps(row) if row else self._missing("customer", email)

    @recorded
    def verify_identity(self, customer_id: str, postcode: str) -> str:
        """Check a customer's postcode."""
        row = self._database.row("SELECT * FROM customers WHERE id = ?", customer_id)
        if row is None:
            return self._missing("customer", customer_id)
        if row["postcode"] != postcode.strip():
            return self._wrong("not verified: the postcode is wrong", postcode)
        self._verified = customer_id
        return "verified"

    @recorded
    def get_order(self, order_id: str) -> str:
        """Get an order."""
        order = self._database.row("SELECT * FROM orders WHERE id = ?", order_id)
        if order is None:
            return self._missing("order", order_id)
        self._seen.add(order_id)
        return json.dumps(self._shown(order))

    @recorded
    def list_orders(self, customer_id: str) -> str:
        """List a customer's orders."""
        if customer_id != self._verified:
            self.forbid("verify the customer before you list orders.")
        orders = self._database.rows(
            "SELECT * FROM orders WHERE customer_id = ? ORDER BY id", customer_id
        )
        self._seen |= {order["id"] for order in orders}
        return "\n".join(json.dumps(self._shown(order)) for order in orders)

    @recorded
    def track_shipment(self, order_id: str) -> str:
        """Track a shipment."""
        row = self._database.row("SELECT * FROM shipments WHERE order_id = ?", order_id)
        return json.dumps(row) if row else self._missing("order", order_id)

    @recorded
    def check_stock(self, product: str) -> str:
        """Say how many of a product are left."""
        row = self._database.row(
            "SELECT name AS product, stock FROM products WHERE name = ?",
            product.strip().lower(),
        )
        return json.dumps(row) if row else self._missing("product", product)

    @recorded
    def cancel_order(self, order_id: str, reason: str | None = None) -> str:
        """Cancel an order."""
        order = self._order_to_change(order_id)
        if order["status"] not in UNSHIPPED:
            self.forbid(f"the order is {order['status']}; return the item.")
        self._database.run(
            "UPDATE orders SET status = 'cancelled' WHERE id = ?", order_id
        )
        return f"{order_id} cancelled"

    @recorded
    def return_item(self, order_id: str, item: str, quantity: int = 1) -> str:
        """Start the return of an item."""
        order = self._order_to_change(order_id)
        if order["status"] not in SENT:
            self.forbid(f"the order is {order['status']}; it cannot come back.")
        name = item.strip().lower()
        row = self._database.row(
            "SELECT sum(quantity) AS left FROM (SELECT quantity FROM items WHERE "
            "order_id = ? AND name = ? UNION ALL SELECT -quantity FROM returns "
            "WHERE order_id = ? AND item = ?)",
            *(order_id, name, order_id, name),
        )
        if not 1 <= quantity <= ((row or {}).get("left") or 0):
            raise ToolError(f"{order_id} has no {quantity} {item} to return.")
        self._database.run(
            "INSERT INTO returns (order_id, item, quantity) VALUES (?, ?, ?) "
            "ON CONFLICT DO UPDATE SET quantity = quantity + excluded.quantity",
            *(order_id, name, quantity),
        )
        return "return started"

    @recorded
    def refund_order(self, order_id: str, amount: float) -> str:
        """Pay money back for an order."""
        order = self._order_to_change(order_id)
        if order["status"] != "delivered":
            self.forbid(f"the order is {order['status']}, not delivered.")
        if self._refunded(order_id):
            self.forbid("the order was refunded before.")
        days = order["delivered_days_ago"] or 0
        if days > REFUND_DAYS:
            self.forbid(f"delivered {days} days ago; escalate.")
        if order["total"] > MOST_REFUND:
            self.forbid(f"more than {MOST_REFUND}; escalate.")
        if not math.isclose(amount, order["total"], abs_tol=0.005):
            raise ToolError("refund the order's total, no other amount.")
        self._database.insert("refunds", order_id, amount, None)
        return "refunded"

    @recorded
    def update_address(self, order_id: str, street: str, city: str) -> str:
        """Change the delivery address of an order."""
        order = self._order_to_change(order_id)
        if order["status"] not in UNSHIPPED:
            self.forbid(f"the order is {order['status']}.")
        self._database.run(
            "UPDATE orders SET street = ?, city = ? WHERE id = ?",
            *(street, city, order_id),
        )
        return "address changed"

    @recorded
    def create_ticket(
        self, customer_id: str, subject: str, priority: Literal["low", "medium", "high"]
    ) -> str:
        """Open a ticket."""
        if customer_id != self._verified:
            self.forbid("verify the customer before you open a ticket.")
        ticket = (customer_id, subject, priority)
        number = self._database.insert("tickets", *ticket, None)
        return f"ticket T-{number} opened"

    @recorded
    def escalate(self, reason: str) -> str:
        """Hand over to a human."""
        self._database.insert("escalations", reason, None)
        return "handed over"

    def _order_to_change(self, order_id: str) -> dict[str, Any]:
        """Check the rules for changing an order, and return its row."""
        order = self._database.row("SELECT * FROM orders WHERE id = ?", order_id)
        if order is None:
            raise ToolError(f"there is no order {order_id}.")
        if self._verified is None:
            self.forbid("verify the customer before you change anything.")
        elif order["customer_id"] != self._verified:
            self.forbid(f"{order_id} is another customer's order.")
        if order_id not in self._seen:
            self.forbid("look at the order before you change it.")
        return order

    def _shown(self, order: dict[str, Any]) -> dict[str, Any]:
        """Convert an order's row to the fields that the tools show to the agent."""
        items = self._database.rows(
            "SELECT * FROM items WHERE order_id = ?", order["id"]
        )
        counts = [f"{i['quantity']} " if i["quantity"] > 1 else "" for i in items]
        names = [count + i["name"] for count, i in zip(counts, items, strict=True)]
        shown = {
            "order_id": order["id"],
            "status": order["status"],
            "items": ", ".join(names),
            "total": order["total"],
        }
        if order["status"] == "delivered":
            shown["delivered_days_ago"] = order["delivered_days_ago"]
        if self._refunded(order["id"]):
            shown["refunded"] = "yes"
        return shown

    def _refunded(self, order_id: str) -> bool:
        return bool(
            self._database.row("SELECT 1 FROM refunds WHERE order_id = ?", order_id)
        )

    def _missing(self, what: str, key: str) -> str:
        """Return or raise "there is no …", as :meth:`_wrong` decides."""
        return self._wrong(f"there is no {what} {key}.", key, start="error: ")

    def _wrong(self, message: str, key: str, *, start: str = "") -> str:
        """Return an error message if the customer gave the wrong value; else raise.

        A returned message does not count: the agent does not pay for a customer's
        mistake.
        """
        key = key.strip()
        given = rf"(?<!\w){re.escape(key)}(?!\w)"
        if len(key) > 1 and re.search(given, self._script, re.IGNORECASE):
            return f"{start}{message}"
        raise ToolError(message)
