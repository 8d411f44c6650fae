"""Ledger: count each model call as trained, masked or dropped, with the reason."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from agentgym.core.openai import CONTEXT_LENGTH
from agentgym.core.records import Record
from agentgym.core.trajectory import Trajectory


@dataclass(frozen=True)
class Bucket:
    """How one model call was used: trained, masked or dropped, and why.

    Attributes:
        verb: ``trained``; ``masked``: the loss left out the call's tokens; ``dropped``:
            the call, its rollout or its attempt failed or was not used.
        reason: Why the call was not trained, as a category; empty for ``trained``.
    """

    verb: Literal["trained", "masked", "dropped"]
    reason: str = ""


TRAINED = Bucket("trained")
NO_VARIANCE = "no reward variance in its group"
FORCED = "its grammar left no choice"
NOT_REPLAYED = "its grammar does not give its tokens again"
TOO_LONG = "beyond max_episode_tokens"
NOT_FINITE = "the update was not finite and was refused"
FAR_OFF = "its probability is far from that of sampling"
ROLE_NOT_TRAINED = "role not trained"
OF_SOLUTION = "a call of the task's solution, which comes before the sampled one"
NO_COMPARISON = "its role spoke in no other attempt at its task"


class RoleLedger(Record):
    """How many model calls of one role were trained, masked or dropped, and why.

    Attributes:
        calls: Number of requests to the model in training rollouts, unanswered requests
            included.
    """

    calls: int = 0
    trained: int = 0
    masked: Counter[str] = Field(default_factory=Counter)
    dropped: Counter[str] = Field(default_factory=Counter)

    @property
    def counted(self) -> int:
        """Number of trained, masked and dropped calls together."""
        return self.trained + self.masked.total() + self.dropped.total()

    @property
    def adds_up(self) -> bool:
        """Whether every call was counted as trained, masked or dropped."""
        return self.counted == self.calls

    def _put(self, bucket: Bucket) -> None:
        if bucket.verb == "trained":
            self.trained += 1
        else:
            found = self.masked if bucket.verb == "masked" else self.dropped
            found[bucket.reason] += 1


class Judging(Record):
    """Counts of a judge, a model that ranks groups of attempts, and its cost.

    Attributes:
        groups: Number of groups. A group is the attempts at one task.
        estimated: Number of requests whose tokens were estimated, because the server
            did not count them.
        pairs: Number of pairs of a successful and a failed attempt at the same task.
            The scenario decides which attempts are successful.
        agreed: Number of pairs in which the judge gave the successful attempt the
            higher score. A pair with equal scores counts 0.5.
    """

    model: str = ""
    groups: int = 0
    judged: int = 0
    kept: Counter[str] = Field(default_factory=Counter)
    requests: int = 0
    prompt_tokens: int = 0
    response_tokens: int = 0
    estimated: int = 0
    cost: float | None = None
    pairs: int = 0
    agreed: float = 0.0

    @property
    def agreement(self) -> float | None:
        """Share of ``pairs`` in which judge and scenario agree; None without pairs."""
        return self.agreed / self.pairs if self.pairs else None

    @property
    def adds_up(self) -> bool:
        """Whether every group was counted as judged or kept."""
        return self.groups == self.judged + self.kept.total()


class Ledger(RoleLedger):
    """How a run's model calls were used, in total and for each role.

    Attributes:
        judging: The counts and the cost of the judge; None without a judge.
        tokens: The value of ``train_tokens``: which tokens of a trained call the loss
            covered. Empty for runs that did not record the value.
    """

    judging: Judging | None = None
    tokens: str = ""
    roles: dict[str, RoleLedger] = Field(default_factory=dict)

    def add(self, buckets: Iterable[Bucket], *, roles: Sequence[str]) -> None:
        """Add model calls by role and bucket; the last may have no bucket yet."""
        for role in roles:
            self.calls += 1
            self.roles.setdefault(role, RoleLedger()).calls += 1
        for bucket, role in zip(buckets, roles, strict=False):
            self._put(bucket)
            self.roles[role]._put(bucket)

    def add_rollout(self, rollout: Trajectory, buckets: Iterable[Bucket]) -> None:
        """Add a rollout's calls with their buckets; unused calls are dropped."""
        self.add(buckets, roles=[call.agent for call in rollout.model_calls])
        for role, unused in rollout.unused_calls.items():
            for reason, count in unused.items():
                self.add([Bucket("dropped", reason)] * count, roles=[role] * count)

    def why_untrained(self) -> str:
        """Return the main reason for untrained calls, as a sentence's end, or ""."""
        for reason, _ in (self.masked + self.dropped).most_common(1):
            text = f", most of them because of: {reason}"
            if CONTEXT_LENGTH not in reason:
                return text
            return (
                f"{text}. The agent's prompts, with its tools, are longer than the "
                "model's context: choose a model with a longer one (--model), or "
                "shorten them"
            )
        return ""

    @property
    def adds_up(self) -> bool:
        """Whether all counts add up: the totals, each role's, and the judge's."""
        parts = self.roles.values()
        return (
            self.counted == self.calls == sum(part.calls for part in parts)
            and self.trained == sum(part.trained for part in parts)
            and all(part.adds_up for part in parts)
            and (self.judging is None or self.judging.adds_up)
        )
