"""Admission: limit the model calls answered at the same time; pause and resume them."""

import asyncio
from typing import Any

from agentgym.core.openai import ApiError
from agentgym.rollout.gateway.protocol import GatewaySettings

_RATE_LIMIT = "rate_limit_error"


class Admission:
    """Limits the number of model calls that are answered at the same time.

    Answer each call inside ``async with admission:``, always on the same event loop.
    Calls above the setting ``max_in_flight`` wait in order. Entering the block raises
    an ApiError (status 429 with ``Retry-After``) while calls are paused, if
    ``max_waiting`` calls wait already, or after ``max_wait_s`` seconds. Any thread may
    call :meth:`pause` and :meth:`resume`, and read ``in_flight`` and ``waiting``: the
    numbers of running and of waiting calls.
    """

    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings
        self._places = asyncio.Semaphore(settings.max_in_flight)
        self._paused = False
        self._retry_after_s = 5
        self._reason: str | None = None
        self.in_flight = 0
        self.waiting = 0

    def pause(self, reason: str | None = None, retry_after_s: int = 5) -> None:
        """Refuse new and waiting calls with status 429; finish the running calls."""
        self._reason, self._retry_after_s = reason, retry_after_s
        self._paused = True

    def resume(self) -> None:
        """Accept calls again."""
        self._paused = False
        self._reason = None

    def state(self) -> dict[str, Any]:
        """Return the JSON object that Agent Lightning expects from ``/proxy/state``."""
        return {
            "paused": self._paused,
            "retry_after_seconds": self._retry_after_s,
            "reason": self._reason,
            "inflight": self.in_flight,
        }

    async def __aenter__(self) -> None:
        self._refuse_if_paused()
        if self._places.locked():
            await self._wait()
        else:
            await self._places.acquire()
        if self._paused:
            self._places.release()
            self._refuse_if_paused()
        self.in_flight += 1

    async def __aexit__(self, *_: object) -> None:
        self.in_flight -= 1
        self._places.release()

    async def _wait(self) -> None:
        most, wait_s = self._settings.max_waiting, self._settings.max_wait_s
        if self.waiting >= most:
            raise _too_many(f"{self.waiting} calls are waiting already")
        self.waiting += 1
        try:
            async with asyncio.timeout(wait_s):
                await self._places.acquire()
        except TimeoutError:
            raise _too_many(f"no place became free within {wait_s:g} s") from None
        finally:
            self.waiting -= 1

    def _refuse_if_paused(self) -> None:
        if self._paused:
            message = "gateway paused" + (f": {self._reason}" if self._reason else "")
            wait = {"Retry-After": str(self._retry_after_s), "X-Agl-Paused": "true"}
            raise ApiError(429, message, "gateway_paused", _RATE_LIMIT, wait)


def _too_many(why: str) -> ApiError:
    message = f"Too many model calls in flight: {why}."
    return ApiError(
        429, message, "too_many_requests", _RATE_LIMIT, {"Retry-After": "1"}
    )
