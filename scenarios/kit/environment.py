"""Environments that record their tool calls, and a database for them."""

import inspect
import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import cache, wraps
from typing import Any, cast

from agentgym.core.tools import tool
from agentgym.scenarios.base import Environment
from agentgym.scenarios.plan_reward import Books, ReceivedCall


class RecordingEnvironment(Environment):
    """An environment whose tools are marked by :func:`recorded`.

    If ``enforce_rules`` is false, a call that breaks a rule runs, and is only counted.
    """

    def __init__(self, *, enforce_rules: bool = True) -> None:
        self.books = Books()
        self.call: dict[str, Any] = {}
        self._enforce = enforce_rules

    def forbid(self, message: str) -> None:
        """Refuse a call that breaks a rule, or only record that the rule was broken."""
        self.books.forbid(message, enforce=self._enforce)


def recorded[F: Callable[..., Any]](function: F) -> F:
    """Mark a method of a :class:`RecordingEnvironment` as a tool; record its calls.

    Until it waits for something, the method can replace an argument in the record, as
    in ``self.call["path"] = …``.
    """
    signature = inspect.signature(function)

    def recording(
        self: RecordingEnvironment, *args: Any, **kwargs: Any
    ) -> AbstractContextManager[None]:
        bound = signature.bind(self, *args, **kwargs)
        bound.apply_defaults()
        self.call = {n: value for n, value in bound.arguments.items() if n != "self"}
        return self.books.recording(ReceivedCall(function.__name__, self.call))

    @wraps(function)
    def run(*args: Any, **kwargs: Any) -> Any:
        with recording(*args, **kwargs):
            return function(*args, **kwargs)

    @wraps(function)
    async def run_async(*args: Any, **kwargs: Any) -> Any:
        with recording(*args, **kwargs):
            return await function(*args, **kwargs)

    is_async = inspect.iscoroutinefunction(function)
    return tool(cast(F, run_async if is_async else run))


class Database:
    """SQLite in memory, one per episode; rows are dicts.

    Args:
        schema: Statements that create the tables.
        tables: The first rows of each table, by its name.
    """

    def __init__(
        self, schema: str, tables: Mapping[str, Iterable[Sequence[Any]]]
    ) -> None:
        # An episode runs in one thread and is scored in another, one after the other.
        self._sql = sqlite3.connect(":memory:", check_same_thread=False)
        self._sql.deserialize(_empty(schema))
        for table, rows in tables.items():
            for row in rows:
                self.insert(table, *row)

    def insert(self, table: str, *row: object) -> int | None:
        """Add a row; return its number."""
        return self.run(
            f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", *row
        )

    def run(self, statement: str, *values: Any) -> int | None:
        """Run a statement that changes rows; return the number of the last new one."""
        return self._sql.execute(statement, values).lastrowid

    def rows(self, query: str, *values: object) -> list[dict[str, Any]]:
        """Return the rows of a query."""
        cursor = self._sql.cursor()
        cursor.row_factory = sqlite3.Row
        return [dict(row) for row in cursor.execute(query, values)]

    def row(self, query: str, *values: object) -> dict[str, Any] | None:
        """Return the first row of a query; None if there is none."""
        return next(iter(self.rows(query, *values)), None)

    def close(self) -> None:
        """Delete the database."""
        self._sql.close()


@cache
def _empty(schema: str) -> bytes:
    """Return a database with empty tables as bytes, to load it without running SQL."""
    database = sqlite3.connect(":memory:")
    database.executescript(schema)
    return database.serialize()
