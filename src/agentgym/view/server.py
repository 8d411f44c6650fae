"""ViewServer: the page, its files and its data, on this machine alone."""

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from importlib.resources import files
from typing import Any, Self
from urllib.parse import parse_qsl

from aiohttp import web

from agentgym.core.openai import ApiError
from agentgym.errors import AgentGymError, NotFoundError, UsageError
from agentgym.models.dialects.base import frame
from agentgym.rollout.gateway.address import check_address, why_unusable
from agentgym.rollout.gateway.http.listener import Listener
from agentgym.rollout.gateway.http.requests import Request
from agentgym.rollout.gateway.http.routes import Route
from agentgym.rollout.gateway.protocol import GatewaySettings, reply
from agentgym.train.run_folder import RunFolder
from agentgym.view.gate import HEADERS, PageKeys
from agentgym.view.opened_run import OpenedRun, Signature

_HOST = "127.0.0.1"
_LOOK_S = 1.0
_QUIET_S = 15.0
_STEPS, _ROLLOUTS = slice(0, 3), slice(3, None)  # of a run's signature
_TYPES = {
    "html": "text/html",
    "css": "text/css",
    "js": "text/javascript",
    "mjs": "text/javascript",
    "svg": "image/svg+xml",
}
_BARE = b'from"preact"'
_RESOLVED = b'from"./preact.mjs"'
"""Preact's hooks name their package, which a browser cannot find."""
_FILTERS = ("sort", "offset", "limit")


class ViewServer:
    """Shows runs in a browser until it is closed; never writes a file.

    ::

        with ViewServer(list_runs(Path("runs"))).start() as server:
            webbrowser.open(server.url)

    Args:
        runs: Returns the folders to show; it is asked again for each list.
        port: 0 takes a free one.

    Raises:
        UsageError: The port cannot be used.
    """

    def __init__(
        self, runs: Callable[[], Sequence[RunFolder]], *, port: int = 0
    ) -> None:
        check_address(_HOST, port, None, how="")
        self.token = secrets.token_hex(16)
        self._find = runs
        self._opened: dict[str, OpenedRun] = {}
        self._assets = _assets()
        self._listener = Listener(
            [
                Route("GET", "/", self._index),
                Route("GET", "/static/{path:.+}", self._static),
                Route("GET", "/api/runs", self._json(self._runs)),
                Route("GET", "/api/runs/{run}", self._of_run(self._page)),
                Route("GET", "/api/runs/{run}/metrics", self._of_run(self._metrics)),
                Route("GET", "/api/runs/{run}/curves", self._of_run(self._curves)),
                Route("GET", "/api/runs/{run}/facets", self._of_run(self._facets)),
                Route("GET", "/api/runs/{run}/confusion", self._of_run(self._confuse)),
                Route("GET", "/api/runs/{run}/rollouts", self._of_run(self._rollouts)),
                Route("GET", "/api/runs/{run}/events", self._events),
                Route(
                    "GET", "/api/runs/{run}/rollouts/{id}", self._of_run(self._rollout)
                ),
                Route(
                    "GET",
                    "/api/runs/{run}/rollouts/{id}/tokens",
                    self._of_run(self._tokens),
                ),
            ],
            GatewaySettings(host=_HOST, port=port),
            keys=PageKeys(self.token, lambda: self._listener.url),
            name="agentgym-view",
            grace_s=0.5,
        )
        try:
            self._listener.bind()
        except OSError as error:
            raise UsageError(why_unusable(_HOST, port, error)) from None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def base(self) -> str:
        """The server's address without the token."""
        return self._listener.url

    @property
    def url(self) -> str:
        """The address of the page, with the token."""
        return f"{self._listener.url}/?open={self.token}"

    def start(self) -> Self:
        """Answer requests, and begin to read the store of a single run."""
        self._listener.start()
        runs = self._find()
        if len(runs) == 1:
            self._open(runs[0].path.name).start_indexing()
        return self

    def close(self) -> None:
        """Stop answering."""
        self._listener.close()

    def _open(self, name: str) -> OpenedRun:
        """Return a run by its name.

        Raises:
            NotFoundError: No run is called so, or it was removed.
        """
        found = {run.path.name: run for run in self._find()}
        if name not in found:
            self._opened.pop(name, None)
            raise NotFoundError("run", name, list(found))
        opened = self._opened.get(name)
        if opened is None or opened.run.path != found[name].path:
            opened = self._opened[name] = OpenedRun(found[name])
        return opened

    # Handlers

    async def _index(self, request: Request) -> web.Response:
        return self._asset("index.html")

    async def _static(self, request: Request) -> web.Response:
        return self._asset(request.names["path"])

    def _asset(self, path: str) -> web.Response:
        body = self._assets.get(path)
        if body is None:
            raise ApiError(404, f"The page has no file {path!r}.", "not_found")
        kind = _TYPES[path.rpartition(".")[2]]
        return web.Response(
            body=body, headers=HEADERS, content_type=kind, charset="utf-8"
        )

    def _json(
        self, read: Callable[[Request, Mapping[str, str]], Any]
    ) -> Callable[[Request], Awaitable[web.Response]]:
        """Return a handler that reads in a thread, and answers errors in words."""

        async def handler(request: Request) -> web.Response:
            query = dict(parse_qsl(request.rel_url.raw_query_string))
            try:
                found = await asyncio.to_thread(read, request, query)
            except NotFoundError as error:
                raise ApiError(404, str(error), "not_found") from error
            except UsageError as error:
                raise ApiError(400, str(error), "invalid_value") from error
            except AgentGymError as error:
                raise ApiError(409, str(error), "unreadable") from error
            return reply(found, headers=HEADERS)

        return handler

    def _of_run(
        self, read: Callable[[OpenedRun, Request, Mapping[str, str]], Any]
    ) -> Callable[[Request], Awaitable[web.Response]]:
        return self._json(
            lambda request, query: read(
                self._open(request.names["run"]), request, query
            )
        )

    def _runs(self, request: Request, query: Mapping[str, str]) -> Any:
        return {"runs": [OpenedRun(run).row() for run in reversed(self._find())]}

    def _page(self, run: OpenedRun, request: Request, query: Mapping[str, str]) -> Any:
        return run.page()

    def _metrics(
        self, run: OpenedRun, request: Request, query: Mapping[str, str]
    ) -> Any:
        return run.metrics()

    def _curves(
        self, run: OpenedRun, request: Request, query: Mapping[str, str]
    ) -> Any:
        return run.curves(query.get("by", "family"))

    def _facets(
        self, run: OpenedRun, request: Request, query: Mapping[str, str]
    ) -> Any:
        return run.facets()

    def _confuse(
        self, run: OpenedRun, request: Request, query: Mapping[str, str]
    ) -> Any:
        return run.confusion(query.get("phase", "after"))

    def _rollouts(
        self, run: OpenedRun, request: Request, query: Mapping[str, str]
    ) -> Any:
        filters = {k: v for k, v in query.items() if k not in _FILTERS}
        return run.rollouts(
            filters,
            query.get("sort", "-place"),
            _number(query, "offset", 0),
            _number(query, "limit", 50),
        )

    def _rollout(
        self, run: OpenedRun, request: Request, query: Mapping[str, str]
    ) -> Any:
        return run.rollout(request.names["id"])

    def _tokens(
        self, run: OpenedRun, request: Request, query: Mapping[str, str]
    ) -> Any:
        return run.tokens(request.names["id"])

    async def _events(self, request: Request) -> web.StreamResponse:
        """Send an event whenever the run's files change, until the page is closed."""
        try:
            run = self._open(request.names["run"])
        except NotFoundError as error:
            raise ApiError(404, str(error), "not_found") from error
        response = web.StreamResponse(
            headers={**HEADERS, "Content-Type": "text/event-stream; charset=utf-8"}
        )
        await response.prepare(request)
        before: Signature | None = None
        quiet_s = 0.0
        while True:
            now = run.signature()
            if now != before or quiet_s >= _QUIET_S:
                steps, rollouts = (
                    before is not None and before[place] != now[place]
                    for place in (_STEPS, _ROLLOUTS)
                )
                await response.write(frame({"steps": steps, "rollouts": rollouts}))
                before, quiet_s = now, 0.0
            await asyncio.sleep(_LOOK_S)
            quiet_s += _LOOK_S


def _number(query: Mapping[str, str], name: str, default: int) -> int:
    """Return a whole number of a query.

    Raises:
        UsageError: It is none.
    """
    text = query.get(name, str(default))
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise UsageError(f"{name}={text!r} is not a whole number.")
    return int(text)


def _assets() -> dict[str, bytes]:
    """Return the files of the page by their path below ``static``."""
    root = files("agentgym.view") / "static"
    found: dict[str, bytes] = {}
    for folder, prefix in ((root, ""), (root / "vendor", "vendor/")):
        for file in folder.iterdir():
            if file.is_file() and file.name.rpartition(".")[2] in _TYPES:
                found[prefix + file.name] = file.read_bytes().replace(_BARE, _RESOLVED)
    return found
