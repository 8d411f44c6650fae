"""Base classes of records: data with types that files keep as JSON."""

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """A record; an unknown field is an error.

    Its validators are built at its first use: building those of all records would take
    most of the time of ``import agentgym``.
    """

    model_config = ConfigDict(extra="forbid", defer_build=True)


class FrozenRecord(Record):
    """A record whose fields cannot be changed."""

    model_config = ConfigDict(frozen=True)
