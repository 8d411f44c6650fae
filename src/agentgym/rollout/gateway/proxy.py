"""Proxy: the OpenAI-compatible endpoint of every rollout attempt."""

from contextlib import aclosing
from typing import cast

from aiohttp import web
from pydantic import BaseModel

from agentgym.core.openai import DEFAULT_AGENT, ApiError
from agentgym.rollout.gateway.admission import Admission
from agentgym.rollout.gateway.protocol import (
    STREAM_HEADERS,
    Mode,
    ProxyCall,
    answer_json,
    json_object,
    models_reply,
    reply,
)
from agentgym.rollout.gateway.upstream import Answer, Upstream
from agentgym.rollout.gateway.wire import is_writable, read_json
from agentgym.rollout.store.store import Store

_BASE = "/proxy/rollout/{rollout_id}/attempt/{attempt_id}/mode/{mode}/openai/v1"
_PATHS = ("chat/completions", "completions")


class PauseRequest(BaseModel):
    """Body of ``POST /proxy/pause``."""

    retry_after_seconds: int = 5
    reason: str | None = None


class Proxy:
    """Has the upstream answer model calls that are admitted; the store records them."""

    def __init__(self, store: Store, upstream: Upstream, admission: Admission) -> None:
        self._store = store
        self._upstream = upstream
        self._admission = admission

    def routes(self) -> list[web.RouteDef]:
        """Return the routes below ``/proxy``."""
        return [
            web.post("/proxy/pause", self._pause),
            web.post("/proxy/resume", self._resume),
            web.get("/proxy/state", self._state),
            web.get(_BASE + "/models", self._models),
            web.post(_BASE + "/{path:.+}", self._complete),
        ]

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        where = request.match_info
        mode, path = where["mode"], where["path"]
        if mode not in ("train", "val"):
            raise ApiError(404, f"Unsupported proxy mode: {mode}", "not_found")
        if path not in _PATHS:
            raise ApiError(404, f"Unsupported upstream path: {path}", "not_found")
        body = json_object(await request.read())
        agent = str(
            request.headers.get("X-Agent-ID") or body.get("user") or DEFAULT_AGENT
        )
        if not is_writable(agent):
            told = f"X-Agent-ID = {agent!r:.80} is not UTF-8."
            raise ApiError(400, told, "invalid_value")
        rollout_id, attempt_id = where["rollout_id"], where["attempt_id"]
        async with self._admission.slot():
            index = self._store.begin_call(rollout_id, attempt_id, agent)
            call = ProxyCall(
                rollout_id, attempt_id, cast(Mode, mode), path, agent, index, body
            )
            return await self._answer(request, call)

    async def _answer(
        self, request: web.Request, call: ProxyCall
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers=STREAM_HEADERS)
        async with aclosing(self._upstream.answer(call)) as items:
            async for item in items:
                data = item if isinstance(item, bytes) else item.payload
                if isinstance(item, Answer):  # recorded first: the agent may end it
                    where = call.rollout_id, call.attempt_id
                    self._store.record_call(*where, item.raw, routed=item.routed)
                    if not response.prepared:
                        return answer_json(data, item.status)
                elif not response.prepared:
                    await response.prepare(request)
                if data:
                    await response.write(data)
        await response.write_eof()
        return response

    async def _models(self, request: web.Request) -> web.Response:
        """List the one model there is, as OpenAI does."""
        return models_reply([self._upstream.model_name])

    async def _pause(self, request: web.Request) -> web.Response:
        body = PauseRequest.model_validate(await read_json(request, b"{}"))
        self._admission.pause(body.reason, body.retry_after_seconds)
        return reply(self._admission.state())

    async def _resume(self, request: web.Request) -> web.Response:
        self._admission.resume()
        return reply(self._admission.state())

    async def _state(self, request: web.Request) -> web.Response:
        return reply(self._admission.state())
