"""Note: a remark of a tripwire (a test of a scenario) that is not a fault."""

from typing import Literal, NamedTuple


class Note(NamedTuple):
    """A remark to show instead of a tripwire's usual message if it finds no problem."""

    status: Literal["pass", "warn", "skip"]
    why: str
