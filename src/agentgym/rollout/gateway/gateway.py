"""Gateway: serve Agent Lightning's protocol from a thread of this process."""

import asyncio
import secrets
import time
from collections import Counter
from contextlib import aclosing
from dataclasses import replace
from typing import Any, Self, cast

from aiohttp import web
from pydantic import BaseModel, Field

from agentgym.core.openai import DEFAULT_AGENT, ApiError
from agentgym.core.policy import Policy, RegisteredPolicy, ServedPolicy
from agentgym.core.trajectory import Reason
from agentgym.errors import RolloutError
from agentgym.models.answers import AnswerCache
from agentgym.models.dialects.base import frame
from agentgym.models.reference import Endpoint
from agentgym.plugins import registered
from agentgym.rollout.gateway.http import (
    MOST_NAME,
    Admission,
    Keys,
    Listener,
    Request,
    Route,
    agent_key,
    as_api_error,
    why_unusable,
)
from agentgym.rollout.gateway.metered import MeteredEndpoint, MeteredUpstream
from agentgym.rollout.gateway.protocol import (
    STREAM_HEADERS,
    GatewaySettings,
    Mode,
    ProxyCall,
    answer_json,
    check_call,
    is_writable,
    json_object,
    models_reply,
    read_json,
    reply,
)
from agentgym.rollout.gateway.remote import (
    CachedUpstream,
    ProviderUpstream,
    RemoteUpstream,
)
from agentgym.rollout.gateway.upstream import CallOutcome, PolicyUpstream, Upstream
from agentgym.rollout.prompt_overrides import Wording
from agentgym.rollout.store.records import (
    MODEL_REQUEST,
    NewEvent,
    RolloutState,
    answered_calls,
    check_event,
    pack_calls,
)
from agentgym.rollout.store.store import Store
from agentgym.security.audit import AuditLog
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


ATTEMPT = "/api/rollouts/{rollout_id}/attempt/{attempt_id}"
MAX_WAIT_S = 60.0  # longest time that a request may wait for a rollout


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


_READS = frozenset({"GET", "HEAD", "OPTIONS"})
_REFUSED = (401, 403)
# Refused keys of one address are logged at most once in this number of seconds, so that
# a client cannot fill the log.
_EVERY_S = 60.0


class Noted:
    """Writes refused keys and write requests, e.g. of rewards, to the audit log.

    Model calls, and the requests in which workers claim rollouts, are not logged,
    because the store records them.
    """

    def __init__(self, log: AuditLog | None) -> None:
        self._log = log
        self._refused: Counter[str] = Counter()
        self._noted_at: dict[str, float] = {}

    def __call__(self, request: Request, status: int) -> None:
        """Log a request if its key was refused, or if it is a write request."""
        if self._log is None:
            return
        what, times = "gateway", 1
        if status in _REFUSED:
            peer, now = request.remote or "", time.monotonic()
            self._refused[peer] += 1
            if now - self._noted_at.get(peer, -_EVERY_S) < _EVERY_S:
                return
            self._noted_at[peer] = now
            what, times = "refused key", self._refused.pop(peer)
        elif request.method in _READS or not _is_written(request.path):
            return
        self._log.write(
            what,
            key=request.key or None,
            peer=request.remote,
            method=request.method,
            path=request.path[:200],
            status=status,
            times=times if times > 1 else None,
        )


def _is_written(path: str) -> bool:
    return path != "/api/rollouts/claim" and not path.startswith("/proxy/rollout/")


class Gateway:
    """HTTP server for agents, workers and a trainer, on a thread of its own.

    Agents send their model calls to it. ``policy`` answers them: a policy in this
    process, a ServedPolicy (a policy on inference servers), or an Endpoint (a
    provider's model, whose answers ``cache`` may keep). If ``policy`` is None or a
    RegisteredPolicy (the policy of an external trainer), the calls go to the servers
    that were registered at ``/api/models``. With a RegisteredPolicy, clients cannot
    delete rollouts. ``audit`` is the log of write requests and refused keys.
    """

    def __init__(
        self,
        store: Store,
        *,
        policy: Policy | ServedPolicy | RegisteredPolicy | Endpoint | None = None,
        settings: GatewaySettings | None = None,
        cache: AnswerCache | None = None,
        audit: AuditLog | None = None,
    ) -> None:
        self._settings = settings or GatewaySettings()
        self._trained = policy if isinstance(policy, RegisteredPolicy) else None
        served = None if isinstance(policy, RegisteredPolicy) else policy
        if self._trained is not None:
            name = self._trained.model_name
            self._settings = replace(self._settings, model_name=name)
        key = self._settings.api_key
        self.api_key = secrets.token_urlsafe(24) if key is None else key
        self.store = store
        self.admission = Admission(self._settings)
        self._upstream = _upstream(store, served, self._settings, cache)
        self._proxy = Proxy(store, self._upstream, self.admission, self._settings)
        api: type[ApiHandlers] = registered("agentgym.gateway", "api")
        handlers = api(
            store, takes_models=served is None, deletes=self._trained is None
        )
        self._listener = Listener(
            [*self._proxy.routes(), *map(self._kept, handlers.routes())],
            self._settings,
            keys=Keys(self.api_key, for_agents=True),
            name="agentgym-gateway",
            grace_s=self._settings.grace_s,
            during=self._upstream,
            noted=Noted(audit),
        )

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """The base URL, e.g. ``http://127.0.0.1:41234``."""
        return self._listener.url

    @property
    def agent_key(self) -> str:
        """The key for agents, which allows only model calls."""
        return agent_key(self.api_key)

    @property
    def failure(self) -> str | None:
        """Why model calls cannot be answered any more; None if they can."""
        if self._trained is not None:
            return self._trained.failure or None
        return self._upstream.failure

    @property
    def troubles(self) -> list[str]:
        """Messages about model servers that failed, and so got no calls."""
        return self._upstream.troubles

    @property
    def model_name(self) -> str:
        """The model's name, as agents use it in requests."""
        return self._upstream.model_name

    def reword(self, wording: Wording) -> None:
        """Replace the agent's prompts and tool descriptions in all later requests."""
        self._proxy.wording = wording

    def proxy_url(
        self, rollout_id: str, attempt_id: str = "0", mode: Mode = "train"
    ) -> str:
        """Return the base URL for the OpenAI client of an attempt's agent."""
        where = f"rollout/{rollout_id}/attempt/{attempt_id}/mode/{mode}"
        return f"{self.url}/proxy/{where}/openai/v1"

    def start(self) -> Self:
        """Start to listen; raise RolloutError if the address cannot be used."""
        try:
            self._listener.start()
        except OSError as error:
            where = self._settings.host, self._settings.port
            raise RolloutError(why_unusable(*where, error)) from error
        return self

    def close(self) -> None:
        """Stop listening; abort requests that still run ``grace_s`` seconds later."""
        self._listener.close()

    def _kept(self, route: Route) -> Route:
        """Wrap a route: its response waits until the handler's writes are stored."""
        if route.method == "GET":
            return route

        async def handler(request: Any) -> web.StreamResponse:
            answer = await route.handler(request)
            await self.store.kept()
            return answer

        return route._replace(handler=handler)


def _upstream(
    store: Store,
    policy: Policy | ServedPolicy | Endpoint | None,
    settings: GatewaySettings,
    cache: AnswerCache | None,
) -> Upstream:
    if policy is None or isinstance(policy, ServedPolicy):
        return RemoteUpstream(policy or store, settings)
    if isinstance(policy, MeteredEndpoint):
        return MeteredUpstream(policy, settings)
    if isinstance(policy, Endpoint):
        if cache is not None:
            return CachedUpstream(policy, settings, cache)
        return ProviderUpstream(policy, settings)
    return PolicyUpstream(policy, settings)
