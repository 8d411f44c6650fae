"""Gateway: Agent Lightning's protocol, served from a thread of this process."""

import asyncio
import hmac
import logging
import secrets
import threading
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Self

import uvloop
from aiohttp import web
from pydantic import ValidationError

from agentgym.core.openai import ApiError
from agentgym.core.policy import Policy, ServedPolicy
from agentgym.errors import (
    RecordError,
    RolloutError,
    RolloutNotFoundError,
    RolloutStateError,
    StoreError,
)
from agentgym.models.reference import Endpoint
from agentgym.rollout.gateway.admission import Admission
from agentgym.rollout.gateway.api import Api
from agentgym.rollout.gateway.protocol import GatewaySettings, Mode, reply
from agentgym.rollout.gateway.proxy import Proxy
from agentgym.rollout.gateway.remote import ProviderUpstream, RemoteUpstream
from agentgym.rollout.gateway.upstream import PolicyUpstream, Upstream
from agentgym.rollout.gateway.wire import is_writable
from agentgym.rollout.store.store import Store

logger = logging.getLogger(__name__)

_MOST_NAME = 1000  # characters
_CLOSE_S = 2.0

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Gateway:
    """Serves rollouts and model calls on its own thread and event loop.

    Args:
        store: What it serves; not closed with the gateway.
        policy: Answers the model calls: one in this process, one that servers
            answer for, or a provider's endpoint; None forwards them to the servers
            that are registered at ``/api/models``.
        settings: Limits, sampling, address and key.

    Attributes:
        refused: Requests that were answered with an error of ours, by its code.
    """

    def __init__(
        self,
        store: Store,
        *,
        policy: Policy | ServedPolicy | Endpoint | None = None,
        settings: GatewaySettings | None = None,
    ) -> None:
        self._settings = settings or GatewaySettings()
        key = self._settings.api_key
        self.api_key = secrets.token_urlsafe(24) if key is None else key
        self.store = store
        self.admission = Admission(self._settings)
        self._upstream = _upstream(store, policy, self._settings)
        self._proxy = Proxy(store, self._upstream, self.admission)
        self._api = Api(store, takes_models=policy is None)
        self.refused: Counter[str] = Counter()
        self._bound: Future[str] = Future()
        self._stop = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread = threading.Thread(
            target=self._run, name="agentgym-gateway", daemon=True
        )

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """Where it listens, e.g. ``http://127.0.0.1:41234``."""
        return self._bound.result()

    @property
    def failure(self) -> str | None:
        """Why no model call will be answered any more; None while there is hope."""
        return self._upstream.failure

    @property
    def model_name(self) -> str:
        """The model's name, as agents see it."""
        return self._upstream.model_name

    def proxy_url(
        self, rollout_id: str, attempt_id: str = "0", mode: Mode = "train"
    ) -> str:
        """Return the OpenAI base URL of an attempt."""
        where = f"rollout/{rollout_id}/attempt/{attempt_id}/mode/{mode}"
        return f"{self.url}/proxy/{where}/openai/v1"

    def start(self) -> Self:
        """Listen; returns once requests are taken.

        Raises:
            RolloutError: The address cannot be used.
        """
        self._thread.start()
        try:
            self._bound.result()
        except OSError as error:
            where = f"{self._settings.host}:{self._settings.port}"
            told = f"The gateway cannot listen on {where}: {error}"
            raise RolloutError(told) from error
        return self

    def close(self) -> None:
        """Stop listening; requests that wait are cut off."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_CLOSE_S)  # longer only where something hangs

    def _run(self) -> None:
        asyncio.run(self._serve(), loop_factory=uvloop.new_event_loop)

    async def _serve(self) -> None:
        app = web.Application(
            middlewares=[self._guard], client_max_size=self._settings.max_body_bytes
        )
        app.router.add_get("/healthz", _health)
        app.router.add_get("/api/refused", self._count_refused)
        app.router.add_routes([*self._api.routes(), *self._proxy.routes()])
        server = web.AppRunner(
            app,
            access_log=None,
            handler_cancellation=True,  # an agent that hangs up frees its place
            shutdown_timeout=0.2,
        )
        await server.setup()
        self._loop = asyncio.get_running_loop()
        settings = self._settings
        await self._upstream.start()
        try:
            site = web.TCPSite(server, settings.host, settings.port, backlog=1024)
            await site.start()
            _, port = server.addresses[0][:2]
            self._bound.set_result(f"http://{settings.host}:{port}")
            await self._stop.wait()
        except OSError as error:
            self._bound.set_exception(error)
        finally:
            await server.cleanup()
            await self._upstream.close()

    @web.middleware
    async def _guard(
        self, request: web.Request, handler: Handler
    ) -> web.StreamResponse:
        """Check the key, and shape every error."""
        try:
            if request.path != "/healthz" and not self._is_authorized(request):
                key, kind = "invalid_api_key", "authentication_error"
                raise ApiError(401, "Invalid or missing API key", key, kind)
            for name, text in request.match_info.items():
                if len(text) > _MOST_NAME or not is_writable(text):
                    what = f"{name} = {text!r:.80} is no name that can be stored."
                    raise ApiError(400, what, "invalid_value")
            return await handler(request)
        except Exception as error:
            told = _told(error)
            self.refused[told.code] += 1
            if told.code == "internal_error":
                logger.exception("%s %s failed", request.method, request.path)
            return reply(told.body, told.status, told.headers)

    async def _count_refused(self, request: web.Request) -> web.Response:
        return reply({"requests": self.refused, "records": self.store.refused})

    def _is_authorized(self, request: web.Request) -> bool:
        if not self.api_key:
            return True
        header = request.headers.get("Authorization", "")
        given = header.removeprefix("Bearer ") if header.startswith("Bearer ") else ""
        expected = self.api_key.encode()
        return any(
            hmac.compare_digest(key.encode(errors="surrogateescape"), expected)
            for key in (given, request.headers.get("X-API-Key", ""))
        )


def _upstream(
    store: Store,
    policy: Policy | ServedPolicy | Endpoint | None,
    settings: GatewaySettings,
) -> Upstream:
    if policy is None or isinstance(policy, ServedPolicy):
        return RemoteUpstream(policy or store, settings)
    if isinstance(policy, Endpoint):
        return ProviderUpstream(policy, settings)
    return PolicyUpstream(policy, settings)


async def _health(request: web.Request) -> web.Response:
    return reply({"status": "ok"})


def _told(error: Exception) -> ApiError:
    match error:
        case ApiError():
            return error
        case RolloutNotFoundError():
            return ApiError(404, str(error), "rollout_not_found")
        case RolloutStateError():
            return ApiError(409, str(error), "rollout_state")
        case ValidationError():
            return ApiError(422, str(error), "invalid_value")
        case RecordError():
            return ApiError(422, str(error), "invalid_record")
        case StoreError():
            return ApiError(503, str(error), "store_failed", "server_error")
        case web.HTTPException():
            return ApiError(error.status, error.reason, "http_error")
    message = f"{type(error).__name__}: {error}"
    return ApiError(500, message, "internal_error", "server_error")
