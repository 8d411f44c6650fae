"""The shop's database: SQLite in memory, one per episode."""

import sqlite3
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

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

_FILLED = {
    "customers": 4,
    "products": 2,
    "orders": 7,
    "items": 3,
    "shipments": 2,
    "refunds": 2,
}
"""Number of columns that are filled from a task's initial state, by table."""

_CHANGING = {
    "orders": "id, customer_id, status, street, city",
    "refunds": "order_id, round(amount, 2)",
    "returns": "order_id, item, quantity",
    "tickets": "customer_id, subject, priority",
    "escalations": "1",
}
"""Columns that are compared with the goal, by table; no generated ids or texts."""


def open_database(state: State) -> sqlite3.Connection:
    """Return a new database with the rows of a task's initial state."""
    # An episode runs in one thread and is scored in another, one after the other.
    database = sqlite3.connect(":memory:", check_same_thread=False)
    database.deserialize(_empty())
    for table, columns in _FILLED.items():
        marks = ", ".join("?" * columns)
        names = "(order_id, amount)" if table == "refunds" else ""
        database.executemany(
            f"INSERT INTO {table} {names} VALUES ({marks})", state[table]
        )
    return database


def snapshot(database: sqlite3.Connection) -> dict[str, list[Row]]:
    """Return the rows that are compared with a task's goal, by table and sorted."""
    return {
        table: sorted(
            [_plain(value) for value in row]
            for row in database.execute(f"SELECT {columns} FROM {table}")
        )
        for table, columns in _CHANGING.items()
    }


def expected(state: State) -> dict[str, list[Row]]:
    """Return the :func:`snapshot` that a database with these rows would give."""
    with_all = {**{table: [] for table in _CHANGING}, **state}
    rows = {
        "orders": [[o[0], o[1], o[2], o[5], o[6]] for o in with_all["orders"]],
        "refunds": [[order, round(amount, 2)] for order, amount in with_all["refunds"]],
        "escalations": [[1] for _ in with_all["escalations"]],
        "returns": list(with_all["returns"]),
        "tickets": list(with_all["tickets"]),
    }
    return {
        table: sorted([_plain(value) for value in row] for row in found)
        for table, found in rows.items()
    }


@cache
def _empty() -> bytes:
    """Return a database with empty tables as bytes, to load it without running SQL."""
    database = sqlite3.connect(":memory:")
    database.executescript(_SCHEMA)
    return database.serialize()


def _plain(value: object) -> object:
    """Return a text in lower case without outer punctuation; keep other values."""
    return value.strip(" .,!?\"'").casefold() if isinstance(value, str) else value
