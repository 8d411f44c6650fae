"""The decoder: a thread that answers requests in one continuous batch.

Requests join the running batch between decoding steps and leave it when done. What a
request shares with earlier ones is not computed again: the head of its prompt (system
prompt and tools), the earlier turns of its session, and an identical prompt, which
attempts at one task often have as long as they go the same way. A step checks a draft
of several tokens a row, so that a response takes fewer steps than it has tokens.
"""

import atexit
import functools
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice

import numpy as np
import torch
from numpy.typing import NDArray

from agentgym.engines.local.decoding import sampling
from agentgym.engines.local.decoding.forward import BatchForward
from agentgym.engines.local.decoding.kv_cache import SegmentStore
from agentgym.errors import EngineError
from agentgym.security.redaction import get_logger

logger = get_logger(__name__)

_GATHER_SECONDS = 0.002
_PREFILL_TOKENS = 4096
_QUEUE_LIMIT = 16_384
_SHARING_ROWS = 4
_DRAFTED = 7
_PARKED_TOKENS = 60_000
_LOGITS = 2**25
"""Of a step, most of which are of drafts: 128 MiB."""


@dataclass(frozen=True)
class Generation:
    """What was sampled: ids and log-probabilities, and why it ended."""

    ids: list[int]
    logprobs: list[float]
    finish_reason: str
    version: int


@dataclass
class Job:
    """One request as the decoder takes it; see :class:`ChatRequest`.

    Attributes:
        head: How many tokens of the prompt are its head, shared with other requests.
        on_token: Told each token as it is sampled; runs in the decoder's thread.
        future: Gets the generation; cancelling it ends the request.
    """

    prompt: list[int]
    head: int
    session: str
    temperature: float
    max_tokens: int
    seed: int
    on_token: Callable[[int], None] | None = None
    future: "Future[Generation]" = field(default_factory=Future)

    @property
    def columns(self) -> int:
        """Most tokens of prompt and response together."""
        return len(self.prompt) + self.max_tokens


@dataclass(frozen=True)
class _Plan:
    jobs: list[Job]  # that have it; one is prefilled, the others are copies
    head: torch.Tensor | None  # keys and values of its head,
    start: int  # which is so long;
    parked: torch.Tensor | None  # those that follow, of its session or an equal prompt
    held: int  # how many tokens' keys and values are thus there already
    new: list[int]  # the other tokens
    runs: sampling.Runs  # of the part after the head


@dataclass
class _Row:
    job: Job
    head: torch.Tensor | None  # the very tensor that its first keys came from,
    start: int  # and how many of them
    runs: sampling.Runs
    stream: NDArray[np.float32]  # random numbers, one per token
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)

    @property
    def length(self) -> int:
        """How many keys and values it has: the newest token has none yet."""
        return len(self.job.prompt) + len(self.ids) - 1


class Decoder:
    """Answers jobs from a thread of its own.

    Args:
        forward: The model and its batch cache.
        fixed_rows: In deterministic mode the number of rows of every decoding step,
            so that the kernels see one shape whatever the load; 0 otherwise. Each
            prompt is then prefilled alone, from its head on, and nothing is drafted.

    Attributes:
        drafted: Most tokens of a response that are drafted for a step.
        version: Of the weights.
    """

    def __init__(self, forward: BatchForward, *, fixed_rows: int = 0) -> None:
        self._forward = forward
        self._loaded = forward.loaded
        self._cache = forward.cache
        self._fixed_rows = fixed_rows
        self._step_tokens = _LOGITS // self._loaded.vocabulary
        parked = min(_PARKED_TOKENS, self._loaded.cache_tokens // 2)
        self._parked = SegmentStore(parked)
        self._heads = SegmentStore(parked // 2)
        self._prompts = SegmentStore(2 * parked // 5)
        self._drafter = sampling.Drafter()
        self.drafted = 0 if fixed_rows else _DRAFTED
        self._rows: list[_Row] = []
        self._waiting: deque[Job] = deque()
        self._wake = threading.Condition()
        self._paused = self._closed = self._busy = False
        self.version = 0
        self._thread = threading.Thread(
            target=self._run, name="agentgym-decoder", daemon=True
        )
        self._thread.start()
        # A thread that computes, or lets tensors go, while the interpreter goes down
        # aborts the process.
        self._at_exit = functools.partial(_end, weakref.ref(self), self._thread)
        atexit.register(self._at_exit)

    def submit(self, job: Job) -> None:
        """Queue a job; its future is the answer.

        Raises:
            EngineError: The decoder is closed, or too many jobs wait.
        """
        with self._wake:
            if self._closed:
                raise EngineError("The policy is closed; it answers no more requests.")
            if len(self._waiting) >= _QUEUE_LIMIT:
                raise EngineError(f"{_QUEUE_LIMIT} requests wait already; slow down.")
            self._waiting.append(job)
            self._wake.notify_all()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Let running responses finish, and hold new ones back within the block.

        Every response is so from one version of the weights. What was computed from
        the old ones is forgotten.
        """
        with self._wake:
            self._paused = True
            self._wake.notify_all()
            self._wake.wait_for(lambda: self._closed or not (self._busy or self._rows))
        for store in (self._parked, self._heads, self._prompts):
            store.clear()  # first: an update needs the memory
        try:
            yield
        finally:
            self._forward.refresh()
            with self._wake:
                self._paused = False
                self._wake.notify_all()

    def close(self) -> None:
        """End the thread; jobs that run or wait fail with EngineError."""
        self.stop()
        self._thread.join()
        atexit.unregister(self._at_exit)

    def stop(self) -> None:
        """Do as :meth:`close`, but do not wait for the thread."""
        with self._wake:
            self._closed = True
            self._wake.notify_all()

    def _run(self) -> None:
        torch.set_num_threads(self._loaded.threads[1])
        while (jobs := self._next_jobs()) is not None:
            try:
                self._admit(jobs)
                self._step()
            except Exception as error:  # one bad batch must not end the thread
                logger.exception("Decoding failed")
                self._fail(jobs, f"Generation failed: {error}")
            with self._wake:
                self._busy = False
                if self._paused:
                    self._wake.notify_all()
        self._fail(self._waiting, "The policy was closed while the request ran.")
        self._waiting.clear()

    def _fail(self, jobs: Iterable[Job], reason: str) -> None:
        """Answer some jobs, and all that run, with an error."""
        for job in [*(row.job for row in self._rows), *jobs]:
            with suppress(InvalidStateError):  # it has ended already
                job.future.set_exception(EngineError(reason))
        self._rows.clear()

    def _next_jobs(self) -> list[Job] | None:
        """Wait until there is something to do; return jobs to admit, None to end."""
        with self._wake:
            self._wake.wait_for(
                lambda: (
                    self._closed or self._rows or (self._waiting and not self._paused)
                )
            )
            if self._closed:
                return None
            free = (self._fixed_rows or self._cache.most_rows) - len(self._rows)
            if not self._rows:
                self._gather(free)
            count = 0 if self._paused else self._fitting(free)
            self._busy = True
            jobs = [self._waiting.popleft() for _ in range(count)]
        return [job for job in jobs if not job.future.cancelled()]

    def _fitting(self, free: int) -> int:
        """Return how many waiting jobs there is room for, first come, first served."""
        columns = max((row.job.columns for row in self._rows), default=0)
        for count, job in enumerate(islice(self._waiting, free)):
            columns = max(columns, job.columns)
            if len(self._rows) + count >= self._cache.fitting(columns):
                return count
        return min(free, len(self._waiting))

    def _gather(self, enough: int) -> None:
        """Give requests that arrive together a moment to form a batch."""
        deadline = time.monotonic() + _GATHER_SECONDS
        while len(self._waiting) < enough and not self._closed:
            left = deadline - time.monotonic()
            if left <= 0 or not self._wake.wait(min(left, _GATHER_SECONDS / 4)):
                return

    def _admit(self, jobs: list[Job]) -> None:
        """Prefill new rows, identical prompts once, in chunks of like lengths."""
        if not jobs:
            return
        running = [*(row.job for row in self._rows), *jobs]
        columns = max(job.columns for job in running)
        used = max((row.length for row in self._rows), default=0)
        self._cache.make_room(len(running), columns, held=(len(self._rows), used))
        unique: dict[tuple[int, ...], list[Job]] = {}
        for job in jobs:
            unique.setdefault(tuple(job.prompt), []).append(job)
        plans = sorted(map(self._plan, unique.values()), key=lambda p: len(p.new))
        while plans:
            count = 1 if self._fixed_rows else _chunk([len(p.new) for p in plans])
            self._prefill(plans[:count])
            plans = plans[count:]

    def _plan(self, jobs: list[Job]) -> _Plan:
        job = jobs[0]
        most = len(job.prompt) - 1  # the last token's logits are always needed
        start = job.head if job.head <= most else 0
        head = self._head(tuple(job.prompt[:start])) if start else None
        known, parked = self._prompts.match(tuple(job.prompt), job.prompt[start:])
        held = start + known
        if job.session and parked is None:
            found, parked = self._parked.match((job.session, start), job.prompt)
            held = max(held, found)
        runs = sampling.runs_of(job.prompt[job.head :]) if self.drafted else {}
        held = min(held, most)
        return _Plan(jobs, head, start, parked, held, job.prompt[held:], runs)

    def _head(self, ids: tuple[int, ...]) -> torch.Tensor:
        """Return the keys and values of a head; computed once, in one shape."""
        _, segment = self._heads.match(ids, ids)
        if segment is None:
            spare = len(self._rows)
            self._forward.predict([ids], [0], first=spare, only_last=True)
            segment = self._cache.take(spare, slice(0, len(ids)))
            self._heads.put(ids, ids, segment)
        return segment

    def _prefill(self, plans: list[_Plan]) -> None:
        first = len(self._rows)
        for row, plan in enumerate(plans, first):
            if plan.head is not None:
                self._cache.put(row, plan.head, slice(0, plan.start))
            if plan.parked is not None and plan.held > plan.start:
                self._cache.put(row, plan.parked, slice(plan.start, plan.held))
        new, held = [plan.new for plan in plans], [plan.held for plan in plans]
        logits = self._forward.predict(new, held, first=first, only_last=True)
        joining = [(index, plan.jobs[0]) for index, plan in enumerate(plans)]
        for index, plan in enumerate(plans):
            prompt = plan.jobs[0].prompt
            if not self._fixed_rows and len(plan.new) > 1:
                columns = slice(plan.start, len(prompt))
                segment = self._cache.take(first + index, columns)
                self._prompts.put(tuple(prompt), prompt[plan.start :], segment)
            for job in plan.jobs[1:]:
                row, columns = first + len(joining), slice(0, len(prompt))
                self._cache.copy(first + index, row, columns)
                joining.append((index, job))
        for index, job in joining:
            plan, stream = (
                plans[index],
                sampling.random_stream(job.seed, job.max_tokens),
            )
            self._rows.append(_Row(job, plan.head, plan.start, plan.runs, stream))
        new = [plans[index].new[-1:] for index, _ in joining]
        self._sample(first, logits[[index for index, _ in joining]], new)

    def _shared_prefix(self) -> int:
        """Return how long the rows' common head is; 0 if they differ.

        Not in deterministic mode, where the neighbours must make no difference.
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
            draft = self._drafter.draft(prompt, row.ids, row.runs, min(most, left))
            tokens.append([row.ids[-1], *draft])
        idle = max(0, self._fixed_rows - len(self._rows))
        logits = self._forward.predict(
            tokens + [[0]] * idle,
            [row.length for row in self._rows] + [0] * idle,
            shared_prefix=self._shared_prefix(),
        )
        self._sample(0, logits, tokens)

    def _sample(
        self, first: int, logits: torch.Tensor, given: Sequence[Sequence[int]]
    ) -> None:
        """Sample tokens for rows from ``first`` on, and let finished ones go.

        Where a token is sampled that was not drafted, what follows the draft is of no
        use, and the row goes on in the next step.

        Args:
            first: First row.
            logits: After each given token, row after row, (tokens, vocabulary); more
                than those are not looked at.
            given: Of each row the newest token, and those drafted.
        """
        rows, device = self._rows[first:], logits.device
        counts = list(map(len, given))
        idle = logits.shape[0] - sum(counts)
        uniforms = [
            row.stream[len(row.ids) : len(row.ids) + count]
            for row, count in zip(rows, counts, strict=True)
        ]
        uniforms.append(np.zeros(idle, np.float32))
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

    def _take(self, row: _Row, token: int, logprob: float) -> str:
        """Add a sampled token to a response; return why it ends, if it does."""
        row.ids.append(token)
        row.logprobs.append(logprob)
        if row.job.on_token is not None:
            row.job.on_token(token)
        if token in self._loaded.stop_ids:
            return "stop"
        if len(row.ids) >= row.job.max_tokens:
            return "length"
        return "cancelled" if row.job.future.cancelled() else ""

    def _leave(self, place: int, reason: str) -> None:
        """Take a row out of the batch, park its session, and answer."""
        row, last = self._rows[place], len(self._rows) - 1
        job = row.job
        if not self._fixed_rows:
            self._drafter.learn(job.prompt, row.ids)
            if job.session:
                segment = self._cache.take(place, slice(row.start, row.length))
                held = [*job.prompt, *row.ids[:-1]]
                self._parked.put((job.session, row.start), held, segment)
        moved = self._rows.pop()
        if place != last:
            self._rows[place] = moved
            start = row.start if moved.head is row.head else 0
            self._cache.copy(last, place, slice(start, moved.length))
        with suppress(InvalidStateError):  # it was cancelled
            job.future.set_result(
                Generation(row.ids, row.logprobs, reason, self.version)
            )


def _chunk(lengths: list[int]) -> int:
    """Return how many of the prompts, shortest first, to prefill together."""
    total = lengths[0]
    for count, longest in enumerate(lengths[1:], 1):
        total += longest
        if (count + 1) * longest > min(_PREFILL_TOKENS, 1.35 * total + 32):
            return count
    return len(lengths)


def _end(decoder: "weakref.ref[Decoder]", thread: threading.Thread) -> None:
    """Stop a decoder that is still there, and wait until its thread has let it go."""
    if (found := decoder()) is not None:
        found.stop()
    del found
    thread.join()
