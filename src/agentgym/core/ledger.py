"""The ledger: every model call in exactly one bucket, with a reason."""

from collections import Counter
from collections.abc import Iterable

from pydantic import BaseModel, ConfigDict, Field


class Ledger(BaseModel):
    """How many model calls were trained, masked or dropped, and why.

    Attributes:
        calls: Requests to the model in training rollouts, unanswered ones included.
        buckets: Calls per bucket: ``trained``, ``masked:<reason>`` or
            ``dropped:<reason>``.
    """

    model_config = ConfigDict(extra="forbid")

    calls: int = 0
    buckets: Counter[str] = Field(default_factory=Counter)

    def add(self, entries: Iterable[str], *, calls: int) -> None:
        """Count one rollout's entries, of which there must be one per call."""
        self.calls += calls
        self.buckets.update(entries)

    @property
    def trained(self) -> int:
        """Calls that the loss covered."""
        return self.buckets["trained"]

    @property
    def masked(self) -> int:
        """Calls in a sequence whose tokens the loss left out."""
        return self._total("masked:")

    @property
    def dropped(self) -> int:
        """Calls that were not used: their rollout, their attempt or they failed."""
        return self._total("dropped:")

    @property
    def adds_up(self) -> bool:
        """Whether the buckets account for every call made."""
        return self.trained + self.masked + self.dropped == self.calls

    def reasons(self, prefix: str) -> Counter[str]:
        """Return calls by kind of reason of ``masked:`` or of ``dropped:``."""
        found: Counter[str] = Counter()
        for bucket, count in self.buckets.items():
            if bucket.startswith(prefix):
                found[kind_of(bucket.removeprefix(prefix))] += count
        return found

    def _total(self, prefix: str) -> int:
        return sum(n for key, n in self.buckets.items() if key.startswith(prefix))


def kind_of(reason: str) -> str:
    """Return what many reasons have in common: ``crash: KeyError`` of a crash."""
    return ":".join(reason.split(":")[:2])
