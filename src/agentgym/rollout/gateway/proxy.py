"""Proxy: the OpenAI-compatible endpoint of every rollout attempt."""

from contextlib import aclosing
from typing import Any, cast

import orjson
from aiohttp import web
from pydantic import BaseModel

from agentgym.core.openai import DEFAULT_AGENT, ApiError
from agentgym.rollout.gateway.admission import Admission
from agentgym.rollout.gateway.protocol import Mode, ProxyCall
from agentgym.rollout.gateway.upstream import Answer, Upstream
from agentgym.rollout.store.store import Store

_BASE = "/proxy/rollout/{rollout_id}/attempt/{attempt_id}/mode/{mode}/openai/v1"
_PATHS = ("chat/completions", "completions")
_JSON = "application/json"
_STREAM_HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
}


class PauseRequest(BaseModel):
    """Body of ``POST /proxy/pause``."""

    retry_after_seconds: int = 5
    reason: str | None = None


class Proxy:
    """Forwards model calls to the upstream and records them.

    Args:
        store: Knows the rollouts and records the calls.
        upstream: Answers the calls.
        admission: Limits how many are answered at a time.
    """

    def __init__(self, store: Store, upstream: Upstream, admission: Admission) -> None:
        self._store = store
        self._upstream = upstream
        self._admission = admission

    def routes(self) -> list[web.RouteDef]:
        """Return the routes below ``/proxy``."""
        return [
            web.post("/proxy/pause", self.pause),
            web.post("/proxy/resume", self.resume),
            web.get("/proxy/state", self.state),
            web.get(_BASE + "/models", self.models),
            web.post(_BASE + "/{path:.+}", self.complete),
        ]

    async def complete(self, request: web.Request) -> web.StreamResponse:
        """Answer a model call."""
        where = request.match_info
        mode, path = where["mode"], where["path"]
        if mode not in ("train", "val"):
            raise ApiError(404, f"Unsupported proxy mode: {mode}", "not_found")
        if path not in _PATHS:
            raise ApiError(404, f"Unsupported upstream path: {path}", "not_found")
        body = _json_object(await request.read())
        agent = str(
            request.headers.get("X-Agent-ID") or body.get("user") or DEFAULT_AGENT
        )
        rollout_id, attempt_id = where["rollout_id"], where["attempt_id"]
        async with self._admission.slot():
            call = ProxyCall(
                rollout_id=rollout_id,
                attempt_id=attempt_id,
                mode=cast(Mode, mode),
                path=path,
                agent=agent,
                index=self._store.begin_call(rollout_id, attempt_id, agent),
                body=body,
            )
            if body.get("stream"):
                return await self._stream(request, call)
            answer = await self._upstream.answer(call)
            self._record(call, answer)
            return web.Response(
                body=answer.payload, status=answer.status, content_type=_JSON
            )

    async def models(self, request: web.Request) -> web.Response:
        """List the one model there is, as OpenAI does."""
        name = self._upstream.model_name
        model = {"id": name, "object": "model", "created": 0, "owned_by": "agentgym"}
        return _response({"object": "list", "data": [model]})

    async def pause(self, request: web.Request) -> web.Response:
        """Refuse new calls while those in flight are answered."""
        body = PauseRequest.model_validate_json(await request.read() or b"{}")
        self._admission.pause(body.reason, body.retry_after_seconds)
        return _response(self._admission.state())

    async def resume(self, request: web.Request) -> web.Response:
        """Take calls again."""
        self._admission.resume()
        return _response(self._admission.state())

    async def state(self, request: web.Request) -> web.Response:
        """Return whether the proxy is paused, and the calls in flight."""
        return _response(self._admission.state())

    async def _stream(
        self, request: web.Request, call: ProxyCall
    ) -> web.StreamResponse:
        response = web.StreamResponse(headers=_STREAM_HEADERS)
        async with aclosing(cast(Any, self._upstream.stream(call))) as items:
            async for item in items:
                if isinstance(item, Answer):
                    self._record(call, item)
                    if not response.prepared and not item.is_stream:
                        return web.Response(
                            body=item.payload, status=item.status, content_type=_JSON
                        )
                if not response.prepared:
                    await response.prepare(request)
                data = item.payload if isinstance(item, Answer) else item
                if data:
                    await response.write(data)
        await response.write_eof()
        return response

    def _record(self, call: ProxyCall, answer: Answer) -> None:
        """Record before the agent hears of it: it may end the rollout next."""
        self._store.record_call(call.rollout_id, call.attempt_id, answer.record)


def _json_object(raw: bytes) -> dict[str, Any]:
    try:
        body = orjson.loads(raw or b"{}")
    except orjson.JSONDecodeError as error:
        raise ApiError(
            400, f"Invalid JSON in request body: {error}", "invalid_json"
        ) from None
    if not isinstance(body, dict):
        raise ApiError(400, "Request body must be a JSON object", "invalid_json")
    return body


def _response(value: Any) -> web.Response:
    return web.Response(body=orjson.dumps(value), content_type=_JSON)
