"""ApiHandlers: HTTP handlers for the workers that run rollouts."""

import asyncio
from typing import Any

from aiohttp import web
from pydantic import BaseModel, Field

from agentgym.core.openai import ApiError
from agentgym.core.trajectory import Reason
from agentgym.rollout.gateway.http.requests import Request
from agentgym.rollout.gateway.http.routes import Route
from agentgym.rollout.gateway.protocol import reply
from agentgym.rollout.gateway.wire import read_json
from agentgym.rollout.store.events import (
    MODEL_REQUEST,
    answered_calls,
    check_event,
    pack_calls,
)
from agentgym.rollout.store.rollout import NewEvent, RolloutState
from agentgym.rollout.store.store import Store

ATTEMPT = "/api/rollouts/{rollout_id}/attempt/{attempt_id}"
MAX_WAIT_S = 60.0
"""Longest time that a request may wait for a rollout."""


class ClaimRequest(BaseModel):
    """Body of ``POST /api/rollouts/claim``: a worker asks for rollouts to run."""

    n: int = Field(default=1, ge=1)
    worker: str = ""
    wait_s: float = Field(default=0.0, ge=0)


class FinishRequest(BaseModel):
    """Body of ``POST …/attempt/{a}/finish``, in which a worker ends an attempt."""

    state: RolloutState
    events: list[NewEvent] = Field(default_factory=list)
    reason: Reason | None = None
    retry: bool = True


class ApiHandlers:
    """Handles the requests of workers, whose path begins with ``/api``.

    Handlers that read many records run in a thread, so that model calls need not wait.
    With ``takes_models``, clients can register model servers, and post the model calls
    that these servers answered. Without ``deletes``, a request to delete a rollout has
    no effect. A plug-in registers a subclass with further requests.
    """

    def __init__(self, store: Store, *, takes_models: bool, deletes: bool) -> None:
        self._store = store
        self._takes_models = takes_models
        self._deletes = deletes

    def routes(self) -> list[Route]:
        """Return all routes whose path begins with ``/api``."""
        return [
            Route("POST", "/api/rollouts/claim", self._claim),
            Route("GET", ATTEMPT + "/calls", self._list_calls),
            Route("POST", ATTEMPT + "/finish", self._finish),
        ]

    async def _claim(self, request: Request) -> web.Response:
        body = ClaimRequest.model_validate(await read_json(request))
        wait_s = min(body.wait_s, MAX_WAIT_S)
        claimed = await self._store.claim_async(body.worker, body.n, wait_s=wait_s)
        return reply(list(claimed))

    async def _list_calls(self, request: Request) -> web.Response:
        where = self._where(request)

        def packed() -> list[dict[str, Any]]:
            return pack_calls(answered_calls(self._store.events(**where)))

        return reply(await asyncio.to_thread(packed))

    async def _finish(self, request: Request) -> web.Response:
        """End an attempt; record its last events and its end in one transaction."""
        body = FinishRequest.model_validate(await read_json(request))
        where = self._where(request)
        for event in body.events:
            self._check(event)
        ended = self._store.finish(**where, **dict(body))
        return reply(ended)

    def _shown(self, request: Request) -> str:
        """Return the rollout id of a request; raise if a client deleted the rollout."""
        rollout_id = request.names["rollout_id"]
        self._store.check_shown(rollout_id)
        return rollout_id

    def _where(self, request: Request) -> Any:
        self._shown(request)
        return request.names

    def _check(self, event: NewEvent) -> None:
        """Raise if an event is malformed, or if clients may not post its type."""
        if event.event_type == MODEL_REQUEST and not self._takes_models:
            message = "This gateway itself records the calls of its policy; "
            message += "calls that others post cannot be trained on."
            raise ApiError(409, message, "policy_given")
        check_event(event.event_type, event.data)
