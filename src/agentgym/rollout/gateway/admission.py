"""Admission: how many model calls are answered at a time, and whether any are."""

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from agentgym.core.openai import ApiError
from agentgym.rollout.gateway.protocol import GatewaySettings

RATE_LIMIT = "rate_limit_error"


class Admission:
    """Limits the calls in flight; the rest wait in order, up to a bound.

    Belongs to one event loop, except :meth:`pause`, :meth:`resume` and the
    attributes, which any thread may use.

    Attributes:
        in_flight: Calls being answered.
        paused: Whether new calls are refused.
        retry_after_s: What refused callers are told.
        reason: Of the pause.
    """

    def __init__(self, settings: GatewaySettings) -> None:
        self._limit = settings.max_in_flight
        self._max_waiting = settings.max_waiting
        self._max_wait_s = settings.max_wait_s
        self._turns: deque[asyncio.Future[None]] = deque()
        self.in_flight = 0
        self.paused = False
        self.retry_after_s = 5
        self.reason: str | None = None

    @property
    def waiting(self) -> int:
        """Calls that wait for a place."""
        return len(self._turns)

    def pause(self, reason: str | None = None, retry_after_s: int = 5) -> None:
        """Refuse new calls; those in flight are answered."""
        self.reason = reason
        self.retry_after_s = retry_after_s
        self.paused = True

    def resume(self) -> None:
        """Take calls again."""
        self.paused = False
        self.reason = None

    def state(self) -> dict[str, Any]:
        """Return the state as Agent Lightning's ``/proxy/state`` shows it."""
        return {
            "paused": self.paused,
            "retry_after_seconds": self.retry_after_s,
            "reason": self.reason,
            "inflight": self.in_flight,
        }

    @asynccontextmanager
    async def slot(self) -> AsyncIterator[None]:
        """Hold one of the places.

        Raises:
            ApiError: 429, with ``Retry-After``: paused, or no place became free.
        """
        self._refuse_if_paused()
        if self.in_flight < self._limit:
            self.in_flight += 1
        else:
            await self._wait()  # whoever leaves hands its place over
        try:
            self._refuse_if_paused()
            yield
        finally:
            self._leave()

    async def _wait(self) -> None:
        if len(self._turns) >= self._max_waiting:
            raise _too_many(f"{len(self._turns)} calls are waiting already")
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._turns.append(turn)
        try:
            async with asyncio.timeout(self._max_wait_s):
                await turn
        except BaseException as error:
            if turn.done() and not turn.cancelled():
                self._leave()  # handed over at the moment we gave up
            else:
                self._turns.remove(turn)
            if isinstance(error, TimeoutError):
                waited = f"no place became free within {self._max_wait_s:g} s"
                raise _too_many(waited) from None
            raise

    def _leave(self) -> None:
        while self._turns:
            turn = self._turns.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self.in_flight -= 1

    def _refuse_if_paused(self) -> None:
        if not self.paused:
            return
        reason = f": {self.reason}" if self.reason else ""
        raise ApiError(
            429,
            f"gateway paused{reason}",
            "gateway_paused",
            RATE_LIMIT,
            {"Retry-After": str(self.retry_after_s), "X-Agl-Paused": "true"},
        )


def _too_many(why: str) -> ApiError:
    return ApiError(
        429,
        f"Too many model calls in flight: {why}.",
        "too_many_requests",
        RATE_LIMIT,
        {"Retry-After": "1"},
    )
