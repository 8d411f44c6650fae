"""ForwardingUpstream: passes model calls on to OpenAI-compatible servers."""

import asyncio
import logging
import time
from abc import abstractmethod
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import aiohttp
import orjson
from agentlightning.schemas import Model

from agentgym.core.openai import ApiError
from agentgym.models.retries import is_retried, retry_after, retry_delay
from agentgym.rollout.gateway.protocol import GatewaySettings, ProxyCall
from agentgym.rollout.gateway.sse import StreamAssembler, frame
from agentgym.rollout.gateway.upstream import Answer, Upstream
from agentgym.rollout.store.calls import record_of_response

logger = logging.getLogger(__name__)


class ForwardingUpstream(Upstream):
    """Forwards calls over HTTP; a subclass says where to, and with which body.

    Timeouts, broken connections and statuses 408, 409, 429 and 5xx are tried again
    with growing waits, as long as nothing of the answer was passed on. A server that
    asks for a wait (``Retry-After``) is given it, up to a minute.

    Args:
        settings: Tries, timeouts and waits.
    """

    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings
        self._http: aiohttp.ClientSession | None = None

    @abstractmethod
    def _server(self, call: ProxyCall) -> Model:
        """Return the server of a call.

        Raises:
            ApiError: There is none.
        """

    @abstractmethod
    def _prepare(self, call: ProxyCall) -> dict[str, Any]:
        """Return the body to send."""

    def _headers(self) -> dict[str, str]:
        """Return further headers of every request."""
        return {}

    async def start(self) -> None:
        """Open the connection pool."""
        self._http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=self._settings.upstream_timeout_s),
            headers={"Content-Type": "application/json", **self._headers()},
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
        end = b""
        try:
            response = await self._post(sent)
            async with response:
                if response.content_type != "text/event-stream":
                    yield await _whole(sent, response)
                    return
                async for data in response.content.iter_any():
                    assembler.feed(data)
                    if assembler.is_done:
                        end += data
                    else:
                        has_begun = True
                        yield data
                    if assembler.is_ended:
                        break
            if not assembler.is_done:
                raise aiohttp.ClientPayloadError("the stream ended before [DONE]")
            whole = assembler.response
            answer = sent.done(whole, _status_of_stream(whole), end)
            yield replace(answer, is_stream=True)
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            failure = sent.failure(error)
            body = frame(failure.record.response) if has_begun else failure.payload
            yield Answer(failure.status, body, failure.record)

    async def _post(self, sent: "_Sent") -> aiohttp.ClientResponse:
        """Send until the server answers, or the tries are used up."""
        assert self._http is not None, "start() was not called"
        last = self._settings.upstream_attempts - 1
        data = orjson.dumps(sent.body)
        for attempt in range(last + 1):
            sent.retries = attempt
            try:
                response = await self._http.post(sent.url, data=data)
                if attempt == last or not is_retried(response.status):
                    return response
                response.release()
                reason = f"status {response.status}"
                asked = retry_after(response.headers)
            except (aiohttp.ClientError, TimeoutError) as error:
                if attempt == last:
                    raise
                reason, asked = type(error).__name__, 0.0
            await self._back_off(sent.url, attempt, reason, asked)
        raise AssertionError("unreachable: the last attempt returns or raises")

    async def _back_off(
        self, url: str, attempt: int, reason: str, asked: float
    ) -> None:
        delay = retry_delay(self._settings.upstream_backoff_s, attempt, asked)
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
    is_good = response.status < 400
    if isinstance(body, dict) and (not is_good or _is_completion(sent.call, body)):
        return sent.done(body, response.status, payload)
    status = 502 if is_good else response.status
    what = "JSON" if body is None else "a completion"
    text = payload[:200].decode(errors="replace")
    told = ApiError(
        status,
        f"The model server {sent.server.endpoint} answered {response.status}, "
        f"not {what}: {text!r}",
        "upstream_error",
        "server_error",
    )
    return sent.done(told.body, status, orjson.dumps(told.body))


def _status_of_stream(response: dict[str, Any]) -> int:
    """Return the status that a streamed answer would have had in one piece."""
    error = response.get("error")
    if not error:
        return 200
    code = error.get("code") if isinstance(error, dict) else None
    return code if isinstance(code, int) and 400 <= code < 600 else 502


def _is_completion(call: ProxyCall, body: dict[str, Any]) -> bool:
    """Say whether a body has the parts of a chat completion that others rely on."""
    if call.path != "chat/completions":
        return True
    choices = body.get("choices")
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        return False
    message = choices[0].get("message")
    calls = message.get("tool_calls") if isinstance(message, dict) else False
    return calls is None or (
        isinstance(calls, list)
        and all(
            isinstance(c, dict)
            and isinstance(c.get("function"), dict)
            and isinstance(c["function"].get("name"), str)
            and isinstance(c["function"].get("arguments", ""), str | None)
            for c in calls
        )
    )


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
