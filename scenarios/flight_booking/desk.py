"""One episode: a database of flights and bookings, and the tools on it."""

from typing import Any

from agentgym import Environment, tool
from agentgym.errors import RuleViolation, ToolError
from agentgym.packs.kit.environment import Database

MOST_BAGS = 2
REFUND_HOURS = 24

_TABLES = """
CREATE TABLE flights (code TEXT PRIMARY KEY, origin TEXT, destination TEXT, day TEXT,
    price INTEGER, seats INTEGER, international INTEGER);
CREATE TABLE bookings (code TEXT PRIMARY KEY, flight TEXT, passenger TEXT, fare TEXT,
    bags INTEGER, passport TEXT, status TEXT, hours INTEGER, refunded INTEGER);
CREATE TABLE looked_up (what TEXT);
"""


class Desk(Environment):
    """Flights and bookings in memory; ``looked_up`` records the reads and searches.

    Args:
        state: ``flights`` and ``bookings``, a list of rows each, and the number of
            the ``next`` booking with its ``prefix``.
    """

    def __init__(self, state: dict[str, Any]) -> None:
        tables = {name: state[name] for name in ("flights", "bookings")}
        self._database = Database(_TABLES, tables)
        self._prefix, self._next = state["prefix"], state["next"]

    @tool
    def search_flights(self, origin: str, destination: str, day: str) -> str:
        """Search flights from a city to a city on a day."""
        found = self._database.rows(
            "SELECT code, price FROM flights WHERE origin = ? AND destination = ? "
            "AND day = ? AND seats > 0 ORDER BY code",
            *(origin, destination, day),
        )
        if not found:
            raise ToolError(f"no flight from {origin} to {destination} on {day}.")
        self._note(f"flights {origin} {destination} {day}")
        return "\n".join(f"{row['code']} price {row['price']}" for row in found)

    @tool
    def hold_flight(self, flight: str, passenger: str) -> str:
        """Hold a seat on a flight for a passenger."""
        code = self._add(flight, passenger, "basic", "", "held")
        return f"Held as booking {code}."

    @tool
    def book_flight(
        self, flight: str, passenger: str, fare: str = "basic", passport: str = ""
    ) -> str:
        """Book a flight for a passenger: fare basic or flex, passport if abroad."""
        if fare not in ("basic", "flex"):
            raise ToolError(f"there is no fare {fare!r}.")
        if self._flight(flight)["international"] and not passport:
            raise RuleViolation("flights abroad need a passport.")
        code = self._add(flight, passenger, fare, passport, "booked")
        return f"Booked as {code}."

    @tool
    def read_booking(self, booking: str) -> str:
        """Read a booking: flight, cities, passenger, fare, bags and age."""
        row = self._booking(booking)
        flight = self._flight(row["flight"])
        self._note(f"booking {booking}")
        passport = f", passport {row['passport']}" if row["passport"] else ""
        return (
            f"flight {row['flight']}, from {flight['origin']} to "
            f"{flight['destination']}, day {flight['day']}, passenger "
            f"{row['passenger']}, fare {row['fare']}, bags {row['bags']}{passport}, "
            f"{row['status']} {row['hours']} hours ago"
        )

    @tool
    def change_flight(self, booking: str, flight: str) -> str:
        """Move a booking to another flight."""
        self._must_have_read(booking)
        if self._booking(booking)["fare"] == "basic":
            raise RuleViolation("a basic fare cannot be changed.")
        self._take_seat(flight)
        self._update(booking, "flight", flight)
        return f"{booking} is now on {flight}."

    @tool
    def cancel_booking(self, booking: str, refund: bool) -> str:
        """Cancel a booking, with or without a refund."""
        self._must_have_read(booking)
        row = self._booking(booking)
        if refund and row["hours"] > REFUND_HOURS:
            raise RuleViolation(f"no refund after {REFUND_HOURS} hours.")
        self._update(booking, "status", "cancelled")
        self._update(booking, "refunded", int(refund))
        return f"{booking} is cancelled."

    @tool
    def add_bags(self, booking: str, count: int) -> str:
        """Add bags to a booking."""
        bags = self._booking(booking)["bags"] + count
        if not count > 0 or bags > MOST_BAGS:
            raise RuleViolation(f"{MOST_BAGS} bags at most.")
        self._update(booking, "bags", bags)
        return f"{booking} has {bags} bags."

    @tool
    def set_passport(self, booking: str, passport: str) -> str:
        """Write a passport number into a booking."""
        self._booking(booking)
        self._update(booking, "passport", passport)
        return f"{booking} has passport {passport}."

    def bookings(self) -> list[tuple[Any, ...]]:
        """Return all bookings, by code."""
        rows = self._database.rows("SELECT * FROM bookings ORDER BY code")
        return [tuple(row.values()) for row in rows]

    def looked_up(self) -> set[str]:
        """Return the bookings that were read and the routes that were searched."""
        return {row["what"] for row in self._database.rows("SELECT * FROM looked_up")}

    def end_state(self) -> dict[str, Any]:
        """Return the bookings and the reads."""
        bookings = [list(booking) for booking in self.bookings()]
        return {"bookings": bookings, "looked_up": sorted(self.looked_up())}

    def close(self) -> None:
        """Free the database."""
        self._database.close()

    def _flight(self, code: str) -> dict[str, Any]:
        return self._one("flights", code, "flight")

    def _booking(self, code: str) -> dict[str, Any]:
        row = self._one("bookings", code, "booking")
        if row["status"] == "cancelled":
            raise ToolError(f"booking {code} is cancelled.")
        return row

    def _one(self, table: str, code: str, what: str) -> dict[str, Any]:
        sql = f"SELECT * FROM {table} WHERE code = ?"
        row = self._database.row(sql, code)
        if row is None:
            raise ToolError(f"there is no {what} {code!r}.")
        return row

    def _add(
        self, flight: str, passenger: str, fare: str, passport: str, status: str
    ) -> str:
        self._take_seat(flight)
        code = f"{self._prefix}{self._next}"
        self._next += 1
        row = (code, flight, passenger, fare, 0, passport, status, 0, 0)
        self._database.insert("bookings", *row)
        return code

    def _take_seat(self, flight: str) -> None:
        if not self._flight(flight)["seats"]:
            raise ToolError(f"flight {flight} is full.")
        self._database.run(
            "UPDATE flights SET seats = seats - 1 WHERE code = ?", flight
        )

    def _update(self, booking: str, column: str, value: Any) -> None:
        sql = f"UPDATE bookings SET {column} = ? WHERE code = ?"
        self._database.run(sql, value, booking)

    def _note(self, what: str) -> None:
        self._database.insert("looked_up", what)

    def _must_have_read(self, booking: str) -> None:
        if f"booking {booking}" not in self.looked_up():
            raise RuleViolation(f"read booking {booking} before you do that.")
