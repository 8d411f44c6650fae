"""Base classes of records: data with types that files keep as JSON."""

from collections.abc import Iterator
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict


class Record(BaseModel):
    """A record; an unknown field is an error.

    Its validators are built at its first use: building those of all records would take
    most of the time of ``import agentgym``.
    """

    model_config = ConfigDict(extra="forbid", defer_build=True)

    @classmethod
    def __pydantic_on_complete__(cls) -> None:
        """Build the records of the fields, too.

        pydantic's own functions, such as ``to_jsonable_python``, take none without.
        """
        for field in cls.model_fields.values():
            for record in _records(field.annotation):
                record.model_rebuild()


class FrozenRecord(Record):
    """A record whose fields cannot be changed."""

    model_config = ConfigDict(frozen=True)


def _records(kind: Any) -> Iterator[type[Record]]:
    """Yield the records among the types that a type is made of."""
    if isinstance(kind, type) and issubclass(kind, Record):
        yield kind
    for part in get_args(kind):
        yield from _records(part)
