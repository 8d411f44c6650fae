"""ViewServer: serve a web page that shows runs, and its data, on this machine only."""

import asyncio
import hmac
import os
import secrets
import zlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from importlib.resources import files
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

from aiohttp import web

from agentgym.core.files import agents_folder
from agentgym.core.openai import ApiError
from agentgym.errors import AgentGymError, NotFoundError, UsageError
from agentgym.models.dialects.base import frame
from agentgym.plugins.view.opened_run import OpenedRun, files_hash, run_row
from agentgym.rollout.gateway.http import (
    Keys,
    Listener,
    Request,
    Route,
    check_address,
    why_unusable,
)
from agentgym.rollout.gateway.protocol import GatewaySettings, reply
from agentgym.train.run_folder import RunFolder

TOKEN_HEADER = "x-agentgym-token"
# Response headers that forbid inline scripts, other hosts, and embedding the page.
HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; "
    "style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}
_API = "/api/"


class PageKeys(Keys):
    """Accepts only requests of the viewer's own page."""

    # Other sites' pages could send requests, too. They have another Origin, or another
    # Host if their DNS name was pointed at this machine. The token is only in the
    # printed address.
    def __init__(self, token: str, address: Callable[[], str]) -> None:
        super().__init__("")
        self._token = token.encode()
        self._address = address

    def check(self, request: Request) -> None:
        """Check the host, the origin and the token of a request."""
        request.key = "none"
        own = urlsplit(self._address())
        allowed = {own.netloc, f"localhost:{own.port}"}
        if request.header("host") not in allowed:
            raise ApiError(
                403, "This page is for this machine's own browser.", "wrong_host"
            )
        origin = request.header("origin")
        if origin and urlsplit(origin).netloc not in allowed:
            raise ApiError(403, "Another site may not read this page.", "wrong_origin")
        if request.method not in ("GET", "HEAD"):
            raise ApiError(405, "The viewer changes nothing.", "read_only")
        given = request.header(TOKEN_HEADER).encode(errors="surrogateescape")
        is_known = hmac.compare_digest(given, self._token)
        if request.path.startswith(_API) and not is_known:
            raise ApiError(
                401,
                "The address has no valid token. Open the address that `agentgym view` "
                "printed.",
                "no_token",
                "authentication_error",
            )


_HOST = "127.0.0.1"
_LOOK_S = 1.0
_QUIET_S = 15.0
_TYPES = {
    "html": "text/html",
    "css": "text/css",
    "js": "text/javascript",
    "mjs": "text/javascript",
    "svg": "image/svg+xml",
}
_BARE = b'from"preact"'
# Replaces `from"preact"` in scripts: a browser needs a path, not a package name.
_RESOLVED = b'from"./preact.mjs"'
# Files of a run from which its row in the list is made.
_LISTED = ("run.json", "result.json")
_GONE = (
    "It was removed, or lies in another folder: go back to the list of runs, or start "
    "`agentgym view --output FOLDER`."
)
_MOST_ROWS = 500
_PAGING = ("sort", "offset", "limit")


# The usual port of the viewer, so that links to its pages stay valid.
PORT = 8642


def kept_token() -> str:
    """Return this user's private token, so that links stay valid, or a new one."""
    path = agents_folder().with_name("view-token")
    new = secrets.token_hex(16)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as f:
            f.write(new)
    except FileExistsError:
        known = path.read_text(encoding="utf-8")
        return known if len(known) == len(new) else new
    except OSError:
        pass
    return new


class ViewServer:
    """Serves a page that shows runs, until :meth:`close`; never writes a file."""

    def __init__(
        self,
        runs: Callable[[], Sequence[RunFolder]],
        *,
        port: int = 0,
        token: str | None = None,
    ) -> None:
        check_address(_HOST, port, None, how="")
        self.token = token or secrets.token_hex(16)
        self._find = runs
        self._opened: dict[str, OpenedRun] = {}
        self._assets = _assets()
        self._listener = Listener(
            [
                Route("GET", "/", self._asset),
                Route("GET", "/static/{path:.+}", self._asset),
                Route("GET", "/api/runs", self._json(self._runs)),
                Route("GET", "/api/events", partial(_send_changes, self._cursor)),
                Route("GET", f"{_RUN}/events", self._events),
                *(
                    Route("GET", f"{_RUN}{path}", self._of_run(read))
                    for path, read in _OF_RUN.items()
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
        """Start to answer requests."""
        self._listener.start()
        return self

    def close(self) -> None:
        """Stop answering."""
        self._listener.close()

    def _open(self, name: str) -> OpenedRun:
        """Return a run; raise NotFoundError if it is unknown or was deleted."""
        found = {run.path.name: run for run in self._find()}
        if name not in found:
            self._opened.pop(name, None)
            raise NotFoundError("run", name, list(found), _GONE)
        opened = self._opened.get(name)
        if opened is None or opened.run.path != found[name].path:
            opened = self._opened[name] = OpenedRun(found[name])
        return opened

    # Handlers

    async def _asset(self, request: Request) -> web.Response:
        path = request.names.get("path", "index.html")
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
        """Return a handler that calls ``read`` in a thread and replies with JSON."""

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

    def _of_run(self, read: "_Read") -> Callable[[Request], Awaitable[web.Response]]:
        return self._json(
            lambda request, query: read(
                self._open(request.names["run"]), query, request.names.get("id", "")
            )
        )

    def _runs(self, request: Request, query: Mapping[str, str]) -> Any:
        cursor = self._cursor()
        rows = [run_row(run) for run in reversed(self._find())]
        return {"runs": rows, "cursor": cursor}

    def _cursor(self) -> dict[str, str]:
        """Return a hash that changes with the list of runs and their rows."""
        runs = [(r.path.name, files_hash(r, _LISTED)) for r in self._find()]
        return {"runs": f"{zlib.crc32(repr(runs).encode()):08x}"}

    async def _events(self, request: Request) -> web.StreamResponse:
        try:
            run = self._open(request.names["run"])
        except NotFoundError as error:
            raise ApiError(404, str(error), "not_found") from error
        return await _send_changes(run.cursor, request)


_RUN = "/api/runs/{run}"
# A function that reads data of a run; it gets the query, and a rollout's id or "".
_Read = Callable[[OpenedRun, Mapping[str, str], str], Any]
_OF_RUN: dict[str, _Read] = {
    "": lambda run, query, name: run.page(),
    "/curves": lambda run, query, name: run.curves(query.get("by", "family")),
    "/facets": lambda run, query, name: run.facets(),
    "/confusion": lambda run, query, name: run.confusion(query.get("phase", "after")),
    "/graph": lambda run, query, name: run.graph(query),
    "/rollouts": lambda run, query, name: run.rollouts(
        {key: value for key, value in query.items() if key not in _PAGING},
        query.get("sort", "-place"),
        _number(query, "offset", 0),
        min(_number(query, "limit", 50), _MOST_ROWS),
    ),
    "/rollouts/{id}": lambda run, query, name: run.rollout(name),
    "/rollouts/{id}/tokens": lambda run, query, name: run.tokens(name),
}


async def _send_changes(
    cursor: Callable[[], Mapping[str, str]], request: Request
) -> web.StreamResponse:
    """Send the page the hashes of the cursor when one changes, and every 15 s."""
    # The first event comes at once: the page compares it with the cursor of the data
    # that it shows, so that no change is lost before this connection or between two.
    response = web.StreamResponse(
        headers={**HEADERS, "Content-Type": "text/event-stream; charset=utf-8"}
    )
    await response.prepare(request)
    sent: Mapping[str, str] | None = None
    quiet_s = 0.0
    while True:
        now = await asyncio.to_thread(cursor)
        if now != sent or quiet_s >= _QUIET_S:
            await response.write(frame(now))
            sent, quiet_s = now, 0.0
        await asyncio.sleep(_LOOK_S)
        quiet_s += _LOOK_S


def _number(query: Mapping[str, str], name: str, default: int) -> int:
    """Return the integer ``name`` of a query; ``default`` if the query has none."""
    text = query.get(name, str(default))
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise UsageError(f"{name}={text!r} is not a whole number.")
    return int(text)


def _assets() -> dict[str, bytes]:
    """Return the page's files, by relative path in ``static``."""
    root = files("agentgym.plugins.view") / "static"
    found: dict[str, bytes] = {}
    for folder, prefix in ((root, ""), (root / "vendor", "vendor/")):
        for file in folder.iterdir():
            if file.is_file() and file.name.rpartition(".")[2] in _TYPES:
                found[prefix + file.name] = file.read_bytes().replace(_BARE, _RESOLVED)
    return found
