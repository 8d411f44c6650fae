"""Remark: the note of a tripwire on something that is not a fault."""

from typing import Literal, NamedTuple


class Note(NamedTuple):
    """A note on a scenario, instead of the usual one, if nothing is wrong."""

    status: Literal["pass", "warn", "skip"]
    why: str
