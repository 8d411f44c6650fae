"""The ledger: every model call in exactly one bucket, with a reason."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


@dataclass(frozen=True)
class Bucket:
    """Where one model call ends.

    Attributes:
        verb: ``trained``; ``masked``, in a sequence whose tokens the loss left out; or
            ``dropped``: its rollout or its attempt was not used, or it failed.
        reason: Why it was not trained: what many have in common.
    """

    verb: Literal["trained", "masked", "dropped"]
    reason: str = ""


TRAINED = Bucket("trained")
NO_VARIANCE = "no reward variance in its group"
NOT_FINITE = "the update was not finite and was refused"


class Ledger(BaseModel):
    """How many model calls were trained, masked or dropped, and why.

    Attributes:
        calls: Requests to the model in training rollouts, unanswered ones included.
        trained: Calls that the loss covered.
        masked: The others by reason, and so ``dropped``; see :class:`Bucket`.
    """

    model_config = ConfigDict(extra="forbid")

    calls: int = 0
    trained: int = 0
    masked: Counter[str] = Field(default_factory=Counter)
    dropped: Counter[str] = Field(default_factory=Counter)

    def add(self, buckets: Iterable[Bucket], *, calls: int) -> None:
        """Count one rollout's buckets, of which there must be one per call."""
        self.calls += calls
        for bucket in buckets:
            if bucket.verb == "trained":
                self.trained += 1
            else:
                (self.masked if bucket.verb == "masked" else self.dropped)[
                    bucket.reason
                ] += 1

    @property
    def counted(self) -> int:
        """Calls in all buckets together."""
        return self.trained + self.masked.total() + self.dropped.total()

    @property
    def adds_up(self) -> bool:
        """Whether the buckets account for every call made."""
        return self.counted == self.calls
