"""Serves a fake provider on loopback, in a thread of the test's process."""

import asyncio
import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Self

from aiohttp import web

from tests.plugins.cloud.fakes.contract import Contract

PAGE = "<html><head><title>502 Bad Gateway</title></head><body>cloudflare</body></html>"
"""What a proxy before a provider says when the provider does not."""


@dataclass(frozen=True)
class Request:
    """What a fake was asked."""

    method: str
    path: str
    body: Any
    headers: dict[str, str]


class Fake(ABC):
    """A provider with faults to be switched on; a subclass says what it answers.

    Attributes:
        prefix: Of all its paths.
        contract: What it takes and answers.
        strays: Answers of its own that its provider would not give.
        is_strict: Whether strays are collected; not where a test wants one.
        key: The only one that it takes.
        asked: All requests, in order.
        busy: So many next requests are refused with 429.
        broken: So many next requests are answered by a proxy's page.
        odd: Status and body with which what makes a machine answers in the place of
            its own; the machine is made.
        ssh: The port of its machines' SSH servers.
    """

    key = "planted-key-4f9d2c"
    prefix = ""
    contract: Contract

    def __init__(self) -> None:
        self.strays: list[str] = []
        self.is_strict = True
        self.asked: list[Request] = []
        self.busy = self.broken = 0
        self.odd: tuple[int, str] | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._runner: web.AppRunner | None = None
        self.url = ""
        self.ssh = 2222

    @abstractmethod
    def routes(self) -> list[web.RouteDef]:
        """Return what is served."""

    @abstractmethod
    def unauthorized(self) -> web.Response:
        """Return the answer to a wrong key."""

    @abstractmethod
    def invalid(self, problems: list[str]) -> web.Response:
        """Return the answer to a request that its description does not allow."""

    @abstractmethod
    def limited(self) -> web.Response:
        """Return the answer to too many requests."""

    def __enter__(self) -> Self:
        self._thread.start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result(10)
        return self

    def __exit__(self, *_: object) -> None:
        assert self._runner is not None
        stopped = self._runner.cleanup()
        asyncio.run_coroutine_threadsafe(stopped, self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _start(self) -> None:
        app = web.Application(middlewares=[self._guard])
        for route in self.routes():
            app.router.add_route(route.method, self.prefix + route.path, route.handler)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        server = site._server
        assert isinstance(server, asyncio.Server)
        port = server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{port}{self.prefix}"

    @property
    def _guard(self) -> Any:
        @web.middleware
        async def guard(
            request: web.Request,
            handler: Callable[[web.Request], Awaitable[web.StreamResponse]],
        ) -> web.StreamResponse:
            body = await request.json() if request.can_read_body else None
            headers = dict(request.headers)
            path = request.path.removeprefix(self.prefix)
            asked = Request(request.method, path, body, headers)
            self.asked.append(asked)
            if self.broken > 0:
                self.broken -= 1
                return web.Response(status=502, text=PAGE, content_type="text/html")
            if self.busy > 0:
                self.busy -= 1
                answer = self.limited()
                answer.headers["Retry-After"] = "0"
                return answer
            if headers.get("Authorization") != f"Bearer {self.key}":
                return self.unauthorized()
            resource = request.match_info.route.resource
            if resource is None:
                return await handler(request)
            path = resource.canonical.removeprefix(self.prefix)
            operation = f"{request.method} {path}"
            query = dict(request.query)
            if wrong := self.contract.request_problems(operation, query, body):
                return self.invalid(wrong)
            answer = await handler(request)
            if self.is_strict and self.odd is None:
                self._check(operation, answer)
            return answer

        return guard

    def _check(self, operation: str, answer: web.StreamResponse) -> None:
        """Note what its provider would not answer; pages of proxies are not its own."""
        if not isinstance(answer, web.Response) or answer.text == PAGE:
            return
        if answer.headers.get("X-Lost"):
            return
        body = json.loads(answer.text) if answer.text else None
        wrong = self.contract.answer_problems(operation, answer.status, body)
        self.strays += [f"{operation}: {each}" for each in wrong]

    def count(self, method: str, path: str) -> int:
        """Return how often that was asked."""
        return sum((r.method, r.path) == (method, path) for r in self.asked)


def lost(request: web.Request) -> web.Response:
    """Break the connection in the place of an answer."""
    assert request.transport is not None
    request.transport.close()
    return web.Response(headers={"X-Lost": "1"})
