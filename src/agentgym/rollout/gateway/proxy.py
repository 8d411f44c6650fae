"""Proxy: serve an OpenAI-compatible endpoint for every attempt of a rollout."""

import asyncio
from contextlib import aclosing
from typing import Any, cast

from aiohttp import web
from pydantic import BaseModel, Field

from agentgym.core.openai import DEFAULT_AGENT, ApiError
from agentgym.errors import RolloutError
from agentgym.models.dialects.base import frame
from agentgym.rollout.gateway.admission import Admission
from agentgym.rollout.gateway.http.listener import as_api_error
from agentgym.rollout.gateway.http.requests import Request
from agentgym.rollout.gateway.http.routes import MOST_NAME, Route
from agentgym.rollout.gateway.protocol import (
    STREAM_HEADERS,
    GatewaySettings,
    Mode,
    ProxyCall,
    answer_json,
    check_call,
    json_object,
    models_reply,
    reply,
)
from agentgym.rollout.gateway.upstream import CallOutcome, Upstream
from agentgym.rollout.gateway.wire import is_writable, read_json
from agentgym.rollout.store.store import Store
from agentgym.security.redaction import beginning, get_logger, quoted

logger = get_logger(__name__)

_BASE = "/proxy/rollout/{rollout_id}/attempt/{attempt_id}/mode/{mode}/openai/v1"
_PATHS = ("chat/completions", "completions")
_DAY_S = 86_400


class PauseRequest(BaseModel):
    """Body of ``POST /proxy/pause``, after which model calls are refused."""

    retry_after_seconds: int = Field(default=5, ge=0, le=_DAY_S)
    reason: str | None = None


class Proxy:
    """Answers agents' model calls, and records them in the store."""

    def __init__(
        self,
        store: Store,
        upstream: Upstream,
        admission: Admission,
        settings: GatewaySettings,
    ) -> None:
        self._store = store
        self._upstream = upstream
        self._admission = admission
        self._write_timeout_s = settings.body_timeout_s
        self.wording = settings.wording

    def routes(self) -> list[Route]:
        """Return all routes whose path begins with ``/proxy``."""
        return [
            Route("POST", _BASE + "/{path:.+}", self._complete),
            Route("GET", _BASE + "/models", self._models),
            Route("POST", "/proxy/pause", self._pause),
            Route("POST", "/proxy/resume", self._resume),
            Route("GET", "/proxy/state", self._state),
        ]

    async def _complete(self, request: Request) -> web.StreamResponse:
        names = request.names
        mode, path = names["mode"], names["path"]
        if mode not in ("train", "val"):
            message = f"Unsupported proxy mode: {beginning(mode, 80)}"
            raise ApiError(404, message, "not_found")
        if path not in _PATHS:
            message = f"Unsupported upstream path: {beginning(path, 80)}"
            raise ApiError(404, message, "not_found")
        body = json_object(await request.read())
        check_call(path, body)
        agent = _agent(request.header("x-agent-id") or body.get("user"))
        body = self.wording.applied(body)
        rollout_id, attempt_id = names["rollout_id"], names["attempt_id"]
        async with self._admission:
            index = self._store.begin_call(rollout_id, attempt_id, agent)
            call = ProxyCall(
                rollout_id, attempt_id, cast(Mode, mode), path, agent, index, body
            )
            return await self._answer(request, call)

    async def _answer(self, request: Request, call: ProxyCall) -> web.StreamResponse:
        where = call.rollout_id, call.attempt_id
        response: web.StreamResponse | None = None
        async with aclosing(self._upstream.answer(call)) as items:
            try:
                async for item in items:
                    data = item if isinstance(item, bytes) else item.payload
                    if isinstance(item, CallOutcome):
                        # record before sending: the agent may disconnect
                        self._store.record_call(*where, item.raw)
                        await self._store.kept()
                        if response is None:
                            return answer_json(data, item.status)
                    elif response is None:
                        response = web.StreamResponse(headers=STREAM_HEADERS)
                        await response.prepare(request)
                    if data and response is not None:
                        await self._write(response, data)
            except ConnectionError:  # the client has gone
                raise
            except Exception as error:
                if response is None:
                    raise
                if not isinstance(error, RolloutError):
                    logger.exception("a stream broke off")
                await self._write(response, frame(as_api_error(error).body))
        assert response is not None  # an upstream's last item is a CallOutcome
        await response.write_eof()
        return response

    async def _write(self, response: web.StreamResponse, data: bytes) -> None:
        """Send a piece of a stream; raise if the client does not read it in time."""
        try:
            async with asyncio.timeout(self._write_timeout_s):
                await response.write(data)
        except TimeoutError:
            raise ConnectionResetError("a stream is not read") from None

    async def _models(self, request: Request) -> web.Response:
        return models_reply([self._upstream.model_name])

    async def _pause(self, request: Request) -> web.Response:
        body = PauseRequest.model_validate(await read_json(request, b"{}"))
        self._admission.pause(body.reason, body.retry_after_seconds)
        return reply(self._admission.state())

    async def _resume(self, request: Request) -> web.Response:
        self._admission.resume()
        return reply(self._admission.state())

    async def _state(self, request: Request) -> web.Response:
        return reply(self._admission.state())


def _agent(message: Any) -> str:
    """Check the agent's name in a request; return the default name if it is empty."""
    agent = message or DEFAULT_AGENT
    if not isinstance(agent, str) or len(agent) > MOST_NAME or not is_writable(agent):
        what = f"The agent's name, {quoted(agent)}, is not a text that can be stored."
        raise ApiError(400, what, "invalid_value")
    return agent
