"""Decoder: a thread that answers requests token by token.

:class:`.batch.BatchDecoder` answers many requests at once,
:class:`.plain.PlainDecoder` one after the other.
"""

import atexit
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from agentgym.engines.local.decoding.threads import ThreadTuner
from agentgym.engines.local.model import LoadedModel
from agentgym.engines.tokens.grammar_path import GrammarPath
from agentgym.errors import EngineError
from agentgym.security.redaction import get_logger

logger = get_logger(__name__)

_GATHER_SECONDS = 0.002
_QUEUE_LIMIT = 16_384


@dataclass(frozen=True)
class Generation:
    """A sampled response: its token ids, and the log-probability of each.

    Attributes:
        finish_reason: ``stop``, ``length`` or ``cancelled``.
        version: Version of the weights that sampled the response.
    """

    ids: list[int]
    logprobs: list[float]
    finish_reason: str
    version: int


@dataclass
class DecodingJob:
    """One request for the decoder: a prompt as token ids, and how to sample.

    Attributes:
        head: Number of prompt tokens in its head (system prompt and tools), which
            other requests share.
        adapter: Index of the role's own adapter; -1 for none.
        path: State of the response's grammar; None without a grammar.
        on_token: Called with each sampled token, in the decoder's thread.
        ends: Called with each sampled token: whether the response ends there.
        future: Receives the generation; cancelling it ends the request.
    """

    prompt: list[int]
    head: int
    session: str
    temperature: float
    max_tokens: int
    seed: int
    adapter: int = -1
    path: GrammarPath | None = None
    on_token: Callable[[int], None] | None = None
    ends: Callable[[int], bool] | None = None
    future: "Future[Generation]" = field(default_factory=Future)

    @property
    def columns(self) -> int:
        """Largest possible number of tokens of prompt and response together."""
        return len(self.prompt) + self.max_tokens


@dataclass
class Row:
    """A response being sampled: its job, and its tokens so far."""

    job: DecodingJob
    stream: NDArray[np.float32]  # random numbers, one per token
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)

    @property
    def length(self) -> int:
        """Number of tokens with cached keys and values: all but the newest token."""
        return len(self.job.prompt) + len(self.ids) - 1


class Decoder[R: Row](ABC):
    """Answers requests in a separate thread, which also updates the weights.

    One thread does both, since OpenMP (libgomp) keeps helper threads for every thread
    that computes. With more helper threads than cores, all of them sleep between
    kernels, which doubled the sampling time of a small model.

    Args:
        loaded: The model.
        most_rows: Most responses that are sampled at once.
        fixed_threads: Use the same number of kernel threads in each step, so that
            results repeat bit for bit.

    Attributes:
        version: Version of the weights: the number of updates so far.
    """

    def __init__(
        self, loaded: LoadedModel, *, most_rows: int, fixed_threads: bool
    ) -> None:
        self._loaded = loaded
        self._most_rows = most_rows
        self._rows: list[R] = []
        is_fixed = fixed_threads or loaded.device.type != "cpu"
        self._tuner = ThreadTuner(1 if is_fixed else loaded.threads[1])
        self._waiting: deque[DecodingJob] = deque()
        self._works: deque[tuple[Callable[[], Any], Future[Any]]] = deque()
        self._wake = threading.Condition()
        self._closed = False
        self.version = 0
        self._thread = threading.Thread(
            target=self._run, name="agentgym-decoder", daemon=True
        )
        self._thread.start()
        # A thread that computes or frees tensors during interpreter shutdown aborts the
        # process.
        self._at_exit = partial(_end, weakref.ref(self), self._thread)
        atexit.register(self._at_exit)

    def _fitting(self, waiting: Sequence[DecodingJob]) -> int:
        """Return how many of the first waiting jobs fit into memory now."""
        return min(self._most_rows - len(self._rows), len(waiting))

    @abstractmethod
    def _advance(self, jobs: list[DecodingJob]) -> None:
        """Start jobs, and sample at least one more token of all running responses."""

    @abstractmethod
    def _forget(self) -> None:
        """Drop caches computed with the current weights, which are about to change."""

    @abstractmethod
    def _refresh(self) -> None:
        """Update copies of the model's weights, which may have changed."""

    def submit(self, job: DecodingJob) -> None:
        """Queue a job.

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

    def between_responses[T](self, work: Callable[[], T]) -> T:
        """Finish running responses, then run ``work`` in the decoder's thread.

        So ``work`` may change the weights: no response is sampled from two versions of
        them. Caches of the old version are dropped. If the caller is interrupted while
        it waits, an update ends after its current micro-batch.

        Raises:
            EngineError: The decoder is closed.
        """
        done: Future[T] = Future()
        try:
            with self._wake:
                if self._closed:
                    raise EngineError("The policy is closed: it is trained no more.")
                self._works.append((work, done))
                self._wake.notify_all()
            return done.result()
        except BaseException:
            if not (done.cancel() or done.done()):
                self._loaded.interrupted.set()
            raise

    def close(self) -> None:
        """End the thread; running and waiting jobs fail with EngineError."""
        self.stop()
        self._thread.join()
        atexit.unregister(self._at_exit)

    def stop(self) -> None:
        """Ask the thread to end, as :meth:`close` does, but do not wait for its end."""
        with self._wake:
            self._closed = True
            self._wake.notify_all()

    def _run(self) -> None:
        torch.set_num_threads(self._loaded.threads[1])
        while self._has_more():
            if self._works and not self._rows:
                self._do(*self._works.popleft())
                continue
            jobs = self._next_jobs()
            try:
                if jobs:
                    self._advance(jobs)
                else:
                    self._tuner.run(partial(self._advance, []))
            except Exception as error:  # one bad batch must not end the thread
                logger.exception("Decoding failed")
                self._fail(jobs, f"Generation failed: {error}")
        reason = "The policy was closed while the request ran."
        self._fail(self._waiting, reason)
        self._waiting.clear()
        for _, done in self._works:
            with suppress(InvalidStateError):
                done.set_exception(EngineError(reason))

    def _do(self, work: Callable[[], Any], done: "Future[Any]") -> None:
        """Run ``work`` of :meth:`between_responses`; pass its result to ``done``."""
        if not done.set_running_or_notify_cancel():
            return
        self._loaded.interrupted.clear()
        try:
            self._forget()  # before the work: an update needs the memory
            try:
                made = work()
            finally:
                self._refresh()
        except BaseException as error:  # noqa: BLE001 - raised again where it is awaited
            done.set_exception(error)
        else:
            done.set_result(made)

    def _fail(self, jobs: Iterable[DecodingJob], reason: str) -> None:
        """Fail these jobs and all running jobs with EngineError(reason)."""
        for job in [*(row.job for row in self._rows), *jobs]:
            with suppress(InvalidStateError):  # it has ended already
                job.future.set_exception(EngineError(reason))
        self._rows.clear()

    def _has_more(self) -> bool:
        """Wait until the thread has something to do; return False once closed."""
        with self._wake:
            self._wake.wait_for(
                lambda: self._closed or self._rows or self._waiting or self._works
            )
            return not self._closed

    def _next_jobs(self) -> list[DecodingJob]:
        """Remove and return the waiting jobs that can start now.

        No job is started while work of :meth:`between_responses` waits for the running
        responses to finish.
        """
        with self._wake:
            if not (self._rows or self._works):
                self._gather(self._most_rows)
            count = 0 if self._works else self._fitting(self._waiting)
            jobs = [self._waiting.popleft() for _ in range(count)]
        return [job for job in jobs if not job.future.cancelled()]

    def _gather(self, enough: int) -> None:
        """Wait up to 2 ms for ``enough`` jobs, so that they start in one batch."""
        deadline = time.monotonic() + _GATHER_SECONDS
        while len(self._waiting) < enough and not self._closed:
            left = deadline - time.monotonic()
            if left <= 0 or not self._wake.wait(min(left, _GATHER_SECONDS / 4)):
                return

    def _take(self, row: Row, token: int, logprob: float) -> str:
        """Add a sampled token; return why the response ends; empty if it goes on."""
        row.ids.append(token)
        row.logprobs.append(logprob)
        if row.job.on_token is not None:
            row.job.on_token(token)
        if (path := row.job.path) is not None:
            if path.failure:
                wording = f"The grammar of the answer cannot go on: {path.failure}."
                with suppress(InvalidStateError):  # it was cancelled
                    row.job.future.set_exception(EngineError(wording))
                return "failed"
            path.advance(token)
        if token in self._loaded.stop_ids or (row.job.ends and row.job.ends(token)):
            return "stop"
        if len(row.ids) >= row.job.max_tokens:
            return "length"
        return "cancelled" if row.job.future.cancelled() else ""

    def _answer(self, row: Row, reason: str) -> None:
        """Set the result of a finished response's future."""
        with suppress(InvalidStateError):  # it was cancelled
            row.job.future.set_result(
                Generation(row.ids, row.logprobs, reason, self.version)
            )


def _end(decoder: "weakref.ref[Decoder[Any]]", thread: threading.Thread) -> None:
    """Stop a decoder if it still exists, and wait until its thread has ended."""
    if (found := decoder()) is not None:
        found.stop()
    del found
    thread.join()
