"""Note: a tripwire's remark on something that is not a fault."""

from typing import Literal, NamedTuple


class Note(NamedTuple):
    """A remark that replaces the usual message if nothing is wrong."""

    status: Literal["pass", "warn", "skip"]
    why: str
