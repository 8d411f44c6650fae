"""Define the protocol between the engine and verl's driver.

Both import this module, in different environments, so it imports little.
"""

from typing import TYPE_CHECKING, NotRequired, TypedDict

if TYPE_CHECKING:
    from agentgym.engines.base import TrainingBatch, TrainingSequence

PROTOCOL = 4
"""Version of the protocol; increased when the meaning of a request or answer changes.
"""
SUPPORTED = (0, 9)
"""The release of verl that this code supports."""


class UpdateRow(TypedDict):
    """One sequence of training data, as it is sent to verl's driver in JSON.

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
