"""The shop's database: SQLite in memory, one per episode."""

from collections.abc import Mapping, Sequence
from typing import Any

from agentgym.packs.kit.environment import Database

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
