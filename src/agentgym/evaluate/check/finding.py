"""Note: a remark of a tripwire (a test of a scenario) that is not a fault."""

from typing import Literal, NamedTuple


class Note(NamedTuple):
    """A remark that replaces the usual message of a tripwire without problems."""

    status: Literal["pass", "warn", "skip"]
    why: str
