"""Note: a remark of a tripwire on a scenario without a fault."""

from typing import Literal, NamedTuple


class Note(NamedTuple):
    """A remark that replaces a tripwire's usual message if it finds no problem."""

    status: Literal["pass", "warn", "skip"]
    why: str
