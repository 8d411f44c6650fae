"""Parse simple ("direct") HTTP requests without aiohttp's overhead.

Most model calls and the requests of workers are simple: plain headers, one JSON body,
and a response that is not a stream. All other requests go to aiohttp's server
unchanged.
"""

import re
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

from aiohttp import web

STARTS = (b"POST /proxy/rollout/", b"POST /api/rollouts/", b"GET /api/rollouts/")
"""A direct request begins with one of these."""

_MOST_HEAD = 8190
_END = b"\r\n\r\n"
_HEAD = re.compile(
    rb"(?P<method>GET|POST) (?P<path>/[!-~]+) HTTP/1\.1\r\n"
    rb"(?P<fields>(?:[A-Za-z0-9-]+:[\t -~]*\r\n)+)\r\n"
)
_KNOWN = frozenset(
    b"accept accept-encoding accept-language authorization connection content-length"
    b" content-type host traceparent tracestate user-agent x-agent-id x-api-key"
    b" x-request-id".decode().split()
)


class NotDirectError(Exception):
    """Raised by a handler if aiohttp must answer the request, e.g. with a stream."""


class Head(NamedTuple):
    """The method, the path and the headers of a direct request."""

    method: str
    path: str
    headers: Mapping[str, str]  # by lower-case name
    size: int  # of the head, in bytes
    length: int  # of the body, in bytes


class DirectRequest:
    """A direct request, fully received; handlers use it like a ``Request``."""

    __slots__ = ("_body", "_headers", "key", "method", "names", "raw_path", "remote")
    query: ClassVar[Mapping[str, str]] = {}

    def __init__(self, head: Head, body: bytes, remote: str | None) -> None:
        self.method = head.method
        self.raw_path = head.path
        self.remote = remote
        self.key = ""
        self.names: dict[str, str] = {}
        self._headers = head.headers
        self._body = body

    @property
    def path(self) -> str:
        """The request's path, without a query."""
        return self.raw_path

    def header(self, name: str) -> str:
        """Return a header by its lower-case name; empty if it is missing."""
        return self._headers.get(name, "")

    async def read(self) -> bytes:
        """Return the body."""
        return self._body


def read_head(data: bytes | bytearray) -> Head | None:
    """Parse the head of a direct request; return None if aiohttp must handle it."""
    end = data.find(_END, 0, _MOST_HEAD)
    if end < 0:
        if len(data) < _MOST_HEAD and any(
            data.startswith(start[: len(data)]) for start in STARTS
        ):
            raise BlockingIOError
        return None
    found = _HEAD.fullmatch(data, 0, end + len(_END))
    if found is None or b"?" in found["path"] or b"%" in found["path"]:
        return None
    lines = found["fields"].decode("ascii").split("\r\n")[:-1]
    headers: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.lower()] = value.strip(" \t")
    usual = len(headers) == len(lines) and _is_usual(headers)
    if not usual or not data.startswith(STARTS):
        return None
    method, path = found["method"].decode(), found["path"].decode("ascii")
    return Head(method, path, headers, found.end(), int(headers["content-length"]))


def answer(response: web.Response) -> bytes:
    """Convert a response to the bytes to send over the connection."""
    body = response.body
    assert isinstance(body, bytes)
    fields = "".join(f"{name}: {value}\r\n" for name, value in response.headers.items())
    head = f"HTTP/1.1 {response.status} {response.reason}\r\n{fields}"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode("ascii") + body


def _is_usual(headers: dict[str, Any]) -> bool:
    length = headers.get("content-length", "")
    return (
        "host" in headers
        and length.isdecimal()
        and len(length) < 10
        and headers.get("connection", "keep-alive").lower() == "keep-alive"
        and all(name in _KNOWN or name.startswith("x-") for name in headers)
    )
