"""What a tripwire says beside what is wrong."""

from typing import Literal, NamedTuple


class Remark(NamedTuple):
    """A note on a scenario, instead of the usual one, if nothing is wrong."""

    status: Literal["pass", "warn", "skip"]
    why: str
