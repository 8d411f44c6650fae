"""RemoteUpstream: answers from OpenAI-compatible servers, e.g. vLLM."""

import asyncio
import logging
import random
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import aiohttp
import orjson
from agentlightning.schemas import Model

from agentgym.rollout.calls import record_of_response
from agentgym.rollout.model_servers import ModelServers
from agentgym.rollout.protocol import ApiError, GatewaySettings, ProxyCall
from agentgym.rollout.sse import StreamAssembler, frame
from agentgym.rollout.upstream import Answer, Upstream

logger = logging.getLogger(__name__)

_RETRIED_STATUS = frozenset({408, 409, 429})
_BACKOFF_CAP_S = 8.0


class RemoteUpstream(Upstream):
    """Forwards to the servers that a trainer registered, as Agent Lightning does.

    A rollout always goes to the same server. Timeouts, broken connections and
    statuses 408, 409, 429 and 5xx are tried again with growing waits, as long as
    nothing of the answer was passed on.
    """

    def __init__(self, servers: ModelServers, settings: GatewaySettings) -> None:
        self._servers = servers
        self._settings = settings
        self._http: aiohttp.ClientSession | None = None

    @property
    def model_name(self) -> str:
        """The name under which servers are registered."""
        return self._settings.model_name

    async def start(self) -> None:
        """Open the connection pool."""
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=self._settings.upstream_timeout_s),
            headers={"Content-Type": "application/json"},
        )

    async def close(self) -> None:
        """Close the connection pool."""
        if self._http is not None:
            await self._http.close()

    async def answer(self, call: ProxyCall) -> Answer:
        """Forward a call and return what the server answered, errors included."""
        sent = _Sent(call, self._server(call), self._prepare(call))
        try:
            response = await self._post(sent)
            async with response:
                return await _whole(sent, response)
        except (aiohttp.ClientError, TimeoutError) as error:
            return sent.failure(error)

    async def stream(self, call: ProxyCall) -> AsyncIterator[bytes | Answer]:
        """Pass the server's events on as they come, byte for byte."""
        sent = _Sent(call, self._server(call), self._prepare(call))
        assembler = StreamAssembler()
        has_begun = False
        try:
            response = await self._post(sent)
            async with response:
                if response.content_type != "text/event-stream":
                    yield await _whole(sent, response)
                    return
                async for data in response.content.iter_any():
                    assembler.feed(data)
                    if assembler.is_done:
                        answer = sent.done(assembler.response, 200, data)
                        yield replace(answer, is_stream=True)
                        return
                    has_begun = True
                    yield data
            raise aiohttp.ClientPayloadError("the stream ended before [DONE]")
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            failure = sent.failure(error)
            body = frame(failure.record.response) if has_begun else failure.payload
            yield Answer(failure.status, body, failure.record)

    def _server(self, call: ProxyCall) -> Model:
        server = self._servers.pick(self.model_name, call.rollout_id)
        if server is None:
            raise ApiError(
                503,
                f"No servers available for model {self.model_name!r}; register one "
                "at /api/models.",
                "no_servers",
                "server_error",
            )
        return server

    def _prepare(self, call: ProxyCall) -> dict[str, Any]:
        """Return the body to send: ids are asked for, sampling is the mode's."""
        body = {
            **call.body,
            "model": self.model_name,
            "temperature": self._settings.temperature(call.mode, call.body),
            "return_token_ids": True,
        }
        if call.mode == "train" and self._settings.include_log_probs:
            body["logprobs"] = True
        if call.mode == "train" and self._settings.include_routed_experts:
            body["return_routed_experts"] = True
        return body

    async def _post(self, sent: "_Sent") -> aiohttp.ClientResponse:
        """Send until the server answers, or the tries are used up."""
        assert self._http is not None, "start() was not called"
        last = self._settings.upstream_attempts - 1
        data = orjson.dumps(sent.body)
        for attempt in range(last + 1):
            sent.retries = attempt
            try:
                response = await self._http.post(sent.url, data=data)
                if attempt == last or not _is_retried(response.status):
                    return response
                response.release()
                reason = f"status {response.status}"
            except (aiohttp.ClientError, TimeoutError) as error:
                if attempt == last:
                    raise
                reason = type(error).__name__
            await self._back_off(sent.url, attempt, reason)
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def _back_off(self, url: str, attempt: int, reason: str) -> None:
        delay = min(self._settings.upstream_backoff_s * 2**attempt, _BACKOFF_CAP_S)
        delay *= random.uniform(0.75, 1.25)
        logger.warning("%s: %s, trying again in %.2f s", url, reason, delay)
        await asyncio.sleep(delay)


class _Sent:
    """A call on its way to a server."""

    def __init__(self, call: ProxyCall, server: Model, body: dict[str, Any]) -> None:
        self.call = call
        self.server = server
        self.body = body
        self.url = f"{server.endpoint.rstrip('/')}/{call.path}"
        self.retries = 0
        self._started = time.perf_counter()

    def done(self, response: dict[str, Any], status: int, payload: bytes) -> Answer:
        """Return the answer, with what is to be recorded."""
        response, routes = _pop_routes(response)
        record = record_of_response(
            response,
            request=self.body,
            agent=self.call.agent,
            model=self.server.model,
            endpoint=self.server.endpoint,
            model_version=self.server.version,
            latency_ms=1000 * (time.perf_counter() - self._started),
            http_status=status,
            retry_count=self.retries,
            routed_experts=routes,
        )
        if routes is not None and payload.startswith(b"{"):
            payload = orjson.dumps(response)
        return Answer(status, payload, record)

    def failure(self, error: Exception) -> Answer:
        """Return the answer to a call that no server answered."""
        is_late = isinstance(error, TimeoutError)
        what = "timed out" if is_late else f"failed ({type(error).__name__}: {error})"
        told = ApiError(
            504 if is_late else 502,
            f"The model server {self.server.endpoint} {what}.",
            "upstream_timeout" if is_late else "upstream_error",
            "server_error",
        )
        return self.done(told.body, told.status, orjson.dumps(told.body))


async def _whole(sent: _Sent, response: aiohttp.ClientResponse) -> Answer:
    """Return an answer that is not streamed."""
    payload = await response.read()
    try:
        body = orjson.loads(payload)
    except ValueError:
        body = None
    if isinstance(body, dict):
        return sent.done(body, response.status, payload)
    status = response.status if response.status >= 400 else 502
    text = payload[:200].decode(errors="replace")
    told = ApiError(
        status,
        f"The model server {sent.server.endpoint} answered {response.status}, "
        f"not JSON: {text!r}",
        "upstream_error",
        "server_error",
    )
    return sent.done(told.body, status, orjson.dumps(told.body))


def _pop_routes(response: dict[str, Any]) -> tuple[dict[str, Any], Any]:
    """Return the response without routed experts, and these."""
    choices = response.get("choices")
    if not isinstance(choices, list):
        return response, None
    found = [c["routed_experts"] for c in choices if c.get("routed_experts")]
    if not found:
        return response, None
    kept = [{k: v for k, v in c.items() if k != "routed_experts"} for c in choices]
    return {**response, "choices": kept}, found[0]


def _is_retried(status: int) -> bool:
    return status in _RETRIED_STATUS or status >= 500
