"""The protocol of client and server; imported by both, so it imports little."""

from typing import Any, TypedDict

PROTOCOL = 1
"""Counted on when a request or an answer changes its meaning."""
KEY_VARIABLE = "AGENTGYM_ENGINE_KEY"
SUPPORTED = (0, 9)
"""The release of verl whose workers and settings these are."""


class UpdateRow(TypedDict):
    """Tokens that an update reads, and those of them that its loss covers.

    Attributes:
        ids: Of prompt and responses, without anything after the last trained token.
        start: The position of the first trained token, 1 or more.
        trained: For each: its position, log-probability when sampled, and advantage.
    """

    ids: list[int]
    start: int
    trained: list[tuple[int, float, float]]


def row_problem(row: Any) -> str:
    """Return why a value is not a valid row; empty if it is one."""
    try:
        ids, start, trained = row["ids"], row["start"], row["trained"]
        if not 1 <= start < len(ids):
            return f"start = {start} is not within its {len(ids)} tokens"
        for position, logprob, advantage in trained:
            if not start <= position < len(ids):
                return f"position {position} is not from {start} to {len(ids) - 1}"
            if not (logprob <= 0.0 and abs(advantage) < float("inf")):
                return f"log-probability {logprob} or advantage {advantage} is none"
    except (KeyError, TypeError, ValueError) as error:
        return f"{type(error).__name__}: {error}"
    return ""
