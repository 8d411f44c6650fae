"""BatchDecoder: answer many requests in one continuous batch.

Requests join the running batch between decoding steps and leave it when they are done.
Stored keys and values are used again for three parts of a prompt: for its head (system
prompt and tools), for earlier turns of its session, and for a whole prompt that was
computed before, e.g. in another attempt at the task. A step checks several guessed
tokens per row (a draft), so that a response takes fewer steps than it has tokens.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import numpy as np
import torch

from agentgym.engines.base import Allowed
from agentgym.engines.local.decoding import sampling
from agentgym.engines.local.decoding.decoder import Decoder, DecodingJob, Row
from agentgym.engines.local.decoding.forward import BatchForward
from agentgym.engines.local.decoding.kv_cache import SegmentStore

_PREFILL_TOKENS = 4096
_SHARING_ROWS = 4
_DRAFTED = 7
_PARKED_TOKENS = 60_000
_LOGITS = 2**25
"""Most logits in a step, which limits the drafts: 128 MiB in float32."""


@dataclass(frozen=True)
class _Plan:
    jobs: list[DecodingJob]  # with equal prompts; the first is prefilled, then copied
    head: torch.Tensor | None  # keys and values of the prompt's head
    start: int  # length of the head in tokens
    parked: torch.Tensor | None  # stored keys and values after the head
    held: int  # number of first tokens whose keys and values are known
    new: list[int]  # the other tokens, to compute
    runs: sampling.Runs  # for drafts: runs of the prompt after the head


@dataclass(kw_only=True)
class _Row(Row):
    head: torch.Tensor | None  # keys and values of the prompt's head
    start: int  # length of the head in tokens
    runs: sampling.Runs


class BatchDecoder(Decoder[_Row]):
    """Answers many requests in one batch, which they join and leave at any step.

    Args:
        forward: The model and its batch cache.
        fixed_rows: Number of rows of every decoding step in deterministic mode; 0 in
            normal mode. With a fixed number, kernels compute the same shape for any
            number of jobs. In deterministic mode, each prompt is prefilled alone,
            starting with its head, and no tokens are drafted.

    Attributes:
        drafted: Most drafted (guessed) tokens of a response in one step.
    """

    def __init__(self, forward: BatchForward, *, fixed_rows: int = 0) -> None:
        self._forward = forward
        self._cache = forward.cache
        self._fixed_rows = fixed_rows
        self._step_tokens = _LOGITS // forward.loaded.vocabulary
        parked = min(_PARKED_TOKENS, forward.loaded.cache_tokens // 2)
        self._parked = SegmentStore(parked)
        self._heads = SegmentStore(parked // 2)
        self._prompts = SegmentStore(2 * parked // 5)
        self._drafter = sampling.Drafter()
        self.drafted = 0 if fixed_rows else _DRAFTED
        # Last: this starts the thread, which uses the attributes above.
        super().__init__(
            forward.loaded,
            most_rows=fixed_rows or self._cache.most_rows,
            fixed_threads=bool(fixed_rows),
        )

    def _fitting(self, waiting: Sequence[DecodingJob]) -> int:
        free = super()._fitting(waiting)
        columns = max((row.job.columns for row in self._rows), default=0)
        for count, job in enumerate(islice(waiting, free)):
            columns = max(columns, job.columns)
            if len(self._rows) + count >= self._cache.fitting(columns):
                return count
        return free

    def _advance(self, jobs: list[DecodingJob]) -> None:
        self._admit(jobs)
        self._step()

    def _forget(self) -> None:
        for store in (self._parked, self._heads, self._prompts):
            store.clear()

    def _refresh(self) -> None:
        self._forward.refresh()

    def _admit(self, jobs: list[DecodingJob]) -> None:
        """Prefill the prompts of new jobs, together if their lengths are similar.

        Equal prompts are computed only once.
        """
        if not jobs:
            return
        running = [*(row.job for row in self._rows), *jobs]
        columns = max(job.columns for job in running)
        used = max((row.length for row in self._rows), default=0)
        self._cache.make_room(len(running), columns, held=(len(self._rows), used))
        unique: dict[Any, list[DecodingJob]] = {}
        for job in jobs:
            unique.setdefault(_key(job), []).append(job)
        plans = sorted(map(self._plan, unique.values()), key=lambda p: len(p.new))
        while plans:
            count = 1 if self._fixed_rows else _chunk([len(p.new) for p in plans])
            self._prefill(plans[:count])
            plans = plans[count:]

    def _plan(self, jobs: list[DecodingJob]) -> _Plan:
        job = jobs[0]
        most = len(job.prompt) - 1  # the last token's logits are always needed
        start = job.head if job.head <= most else 0
        head = self._head(job, start) if start else None
        known, parked = self._prompts.match(_key(job), job.prompt[start:])
        held = start + known
        if job.session and parked is None:
            name = (job.adapter, job.session, start)
            found, parked = self._parked.match(name, job.prompt)
            held = max(held, found)
        runs = sampling.runs_of(job.prompt[job.head :]) if self.drafted else {}
        held = min(held, most)
        return _Plan(jobs, head, start, parked, held, job.prompt[held:], runs)

    def _head(self, job: DecodingJob, length: int) -> torch.Tensor:
        """Return keys and values of a prompt's first ``length`` tokens, its head."""
        ids = tuple(job.prompt[:length])
        name = (job.adapter, ids)
        _, segment = self._heads.match(name, ids)
        if segment is None:
            spare, own = len(self._rows), [job.adapter]
            self._forward.predict([ids], [0], own, first=spare, only_last=True)
            segment = self._cache.take(spare, slice(0, len(ids)))
            self._heads.put(name, ids, segment)
        return segment

    def _prefill(self, plans: list[_Plan]) -> None:
        first = len(self._rows)
        for row, plan in enumerate(plans, first):
            if plan.head is not None:
                self._cache.put(row, plan.head, slice(0, plan.start))
            if plan.parked is not None and plan.held > plan.start:
                self._cache.put(row, plan.parked, slice(plan.start, plan.held))
        new, held = [plan.new for plan in plans], [plan.held for plan in plans]
        own = [plan.jobs[0].adapter for plan in plans]
        logits = self._forward.predict(new, held, own, first=first, only_last=True)
        joining = [(index, plan.jobs[0]) for index, plan in enumerate(plans)]
        for index, plan in enumerate(plans):
            prompt = plan.jobs[0].prompt
            if not self._fixed_rows and len(plan.new) > 1:
                columns = slice(plan.start, len(prompt))
                segment = self._cache.take(first + index, columns)
                name = _key(plan.jobs[0])
                self._prompts.put(name, prompt[plan.start :], segment)
            for job in plan.jobs[1:]:
                row, columns = first + len(joining), slice(0, len(prompt))
                self._cache.copy(first + index, row, columns)
                joining.append((index, job))
        for index, job in joining:
            plan = plans[index]
            stream = sampling.random_stream(job.seed, job.max_tokens)
            self._rows.append(
                _Row(job, stream, head=plan.head, start=plan.start, runs=plan.runs)
            )
        new = [plans[index].new[-1:] for index, _ in joining]
        self._sample(first, logits[[index for index, _ in joining]], new)

    def _shared_prefix(self) -> int:
        """Return the length of the head if all running rows have the same head, else 0.

        The result is also 0 if only a few rows run, and in deterministic mode, where a
        row must not depend on other rows.
        """
        if self._fixed_rows or len(self._rows) < _SHARING_ROWS:
            return 0
        first = self._rows[0]
        return first.start if all(row.head is first.head for row in self._rows) else 0

    def _step(self) -> None:
        """Sample at least one more token of every running response."""
        if not self._rows:
            return
        most = min(self.drafted, self._step_tokens // len(self._rows) - 1)
        tokens = []
        for row in self._rows:
            prompt, left = row.job.prompt, row.job.max_tokens - len(row.ids) - 1
            most_here = min(most, left)
            draft = self._drafter.draft(prompt, row.ids, row.runs, most_here)
            if row.job.path is not None:
                draft = row.job.path.draft(draft, most_here)
            tokens.append([row.ids[-1], *draft])
        idle = max(0, self._fixed_rows - len(self._rows))
        logits = self._forward.predict(
            tokens + [[0]] * idle,
            [row.length for row in self._rows] + [0] * idle,
            [row.job.adapter for row in self._rows] + [-1] * idle,
            shared_prefix=self._shared_prefix(),
        )
        self._sample(0, logits, tokens)

    def _sample(
        self, first: int, logits: torch.Tensor, given: Sequence[Sequence[int]]
    ) -> None:
        """Sample tokens for rows from index ``first`` on, and remove finished rows.

        At the first sampled token that differs from the draft, the rest of the draft is
        dropped, and the row continues in the next step.
        """
        rows, device = self._rows[first:], logits.device
        counts = list(map(len, given))
        idle = logits.shape[0] - sum(counts)
        uniforms = [
            row.stream[len(row.ids) : len(row.ids) + count]
            for row, count in zip(rows, counts, strict=True)
        ]
        uniforms.append(np.zeros(idle, np.float32))
        if any(row.job.path is not None for row in rows):
            _hold(logits, rows, given)
        temperatures = np.repeat(
            np.array([*(row.job.temperature for row in rows), 1.0], np.float32),
            [*counts, idle],
        )
        tokens, logprobs = sampling.sample(
            logits,
            torch.from_numpy(temperatures).to(device),
            torch.from_numpy(np.concatenate(uniforms)).to(device),
        )
        done: list[tuple[int, str]] = []
        start = 0
        for place, (row, new) in enumerate(zip(rows, given, strict=True), first):
            for index, drafted in enumerate((*new[1:], None), start):
                reason = self._take(row, tokens[index], logprobs[index])
                if reason:
                    done.append((place, reason))
                if reason or tokens[index] != drafted:
                    break
            start += len(new)
        for place, reason in reversed(done):
            self._leave(place, reason)

    def _leave(self, place: int, reason: str) -> None:
        """Remove a finished row, and answer its request with ``reason``, e.g. ``stop``.

        The row's keys and values are stored for the next request of its session.
        """
        row, last = self._rows[place], len(self._rows) - 1
        job = row.job
        if not self._fixed_rows:
            self._drafter.learn(job.prompt, row.ids)
            if job.session:
                segment = self._cache.take(place, slice(row.start, row.length))
                held = [*job.prompt, *row.ids[:-1]]
                name = (job.adapter, job.session, row.start)
                self._parked.put(name, held, segment)
        moved = self._rows.pop()
        if place != last:
            self._rows[place] = moved
            start = row.start if moved.head is row.head else 0
            self._cache.copy(last, place, slice(start, moved.length))
        self._answer(row, reason)


def _key(job: DecodingJob) -> tuple[int, tuple[int, ...]]:
    """Return the lookup key of a prompt's KV cache: its adapter's index and tokens."""
    return job.adapter, tuple(job.prompt)


def _hold(
    logits: torch.Tensor, rows: Sequence[Row], given: Sequence[Sequence[int]]
) -> None:
    """Mask the logits of tokens that the rows' grammars do not allow."""
    places: list[int] = []
    allowed: list[Allowed] = []
    start = 0
    for row, new in zip(rows, given, strict=True):
        if row.job.path is not None:
            allowed += row.job.path.along(new[1:])
            places += range(start, start + len(new))
        start += len(new)
    sampling.hold(logits, places, allowed)


def _chunk(lengths: list[int]) -> int:
    """Return how many prompts to prefill together, so that little padding is computed.

    ``lengths`` has each prompt's number of tokens to compute, in ascending order. The
    result counts from the shortest prompt.
    """
    total = lengths[0]
    for count, longest in enumerate(lengths[1:], 1):
        total += longest
        if (count + 1) * longest > min(_PREFILL_TOKENS, 1.35 * total + 32):
            return count
    return len(lengths)
