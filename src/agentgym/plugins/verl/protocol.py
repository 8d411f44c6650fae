"""Define the protocol between verl's client and server.

Both import this module, in different environments, so it imports little.
"""

from typing import TYPE_CHECKING, Any, NotRequired, TypedDict

if TYPE_CHECKING:
    from agentgym.engines.base import TrainingBatch, TrainingSequence

PROTOCOL = 2
"""Version of the protocol; increased when the meaning of a request or answer changes.
"""
KEY_VARIABLE = "AGENTGYM_ENGINE_KEY"
SUPPORTED = (0, 9)
"""The release of verl that this code supports."""


class UpdateRow(TypedDict):
    """One sequence of training data, as it is sent to verl's server in JSON.

    Attributes:
        ids: Token ids of prompt and responses, up to the last trained token.
        start: The position of the first trained token, 1 or more.
        trained: For each trained token, its position, its log-probability at sampling,
            and its advantage. For ``ppo``, the return of its model call replaces the
            advantage.
        targets: For each trained token, the target of the value model; only for
            ``ppo``.
        reference: For each trained token, its log-probability under the untrained
            model; only with a KL penalty.
    """

    ids: list[int]
    start: int
    trained: list[tuple[int, float, float]]
    targets: NotRequired[list[float]]
    reference: NotRequired[list[float]]


def row_of(sequence: "TrainingSequence") -> UpdateRow:
    """Convert a sequence to a row; leave out tokens after the last trained token."""
    positions = [token.position for token in sequence.trained]
    return {
        "ids": sequence.ids[: max(positions) + 1],
        "start": min(positions),
        "trained": [(t.position, t.logprob, t.advantage) for t in sequence.trained],
    }


def rows_of(batch: "TrainingBatch") -> list[UpdateRow]:
    """Convert each sequence of a batch to a row."""
    return [row_of(sequence) for sequence in batch.sequences]


def row_problem(row: Any) -> str:
    """Return why a value is not a valid row; empty if it is valid."""
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
