"""RouteTable: find the handler of a request."""

import re
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, NamedTuple
from urllib.parse import unquote

from aiohttp import web

from agentgym.core.openai import ApiError
from agentgym.rollout.gateway.wire import invalid, is_writable
from agentgym.security.redaction import quoted

Handler = Callable[[Any], Awaitable[web.StreamResponse]]
Names = dict[str, str]

MOST_NAME = 1000
"""Maximum number of characters in the name of a rollout, an attempt or an agent."""

_NAME = re.compile(r"\{(\w+)(?::(.+?))?\}")


class Route(NamedTuple):
    """The handler for an HTTP method (``*`` for any) on a path.

    In the path, ``{name}`` matches one segment, and ``{name:.+}`` one or more segments.
    """

    method: str
    path: str
    handler: Handler


class RouteTable:
    """Finds the handler of a request."""

    def __init__(self, routes: Sequence[Route]) -> None:
        methods: defaultdict[str, dict[str, Handler]] = defaultdict(dict)
        for route in routes:
            methods[route.path].setdefault(route.method, route.handler)
        self._fixed = {path: methods[path] for path in methods if "{" not in path}
        self._others = [
            (_pattern(path), methods[path]) for path in methods if "{" in path
        ]

    def find(self, method: str, raw_path: str) -> tuple[Handler, Names]:
        """Return the handler of a request, and the values of ``{name}`` in its path."""
        method = "GET" if method == "HEAD" else method
        allowed: set[str] = set()
        for found, names in self._look_up(raw_path):
            handler = found.get(method) or found.get("*")
            if handler is not None:
                return handler, _checked(names)
            allowed |= found.keys()
        path = unquote(raw_path)
        if allowed:
            few = ", ".join(sorted(allowed))
            message = f"{quoted(path)} takes {few}, not {method:.20}."
            raise ApiError(405, message, "method_not_allowed", headers={"Allow": few})
        message = f"This server has no path {quoted(path)}."
        raise ApiError(404, message, "not_found")

    def _look_up(self, path: str) -> Iterator[tuple[dict[str, Handler], Names]]:
        if (fixed := self._fixed.get(path)) is not None:
            yield fixed, {}
        for pattern, methods in self._others:
            if match := pattern.fullmatch(path):
                yield methods, match.groupdict()


def _pattern(path: str) -> re.Pattern[str]:
    parts, end = [], 0
    for name in _NAME.finditer(path):
        parts += [re.escape(path[end : name.start()]), f"(?P<{name[1]}>"]
        parts += [name[2] or "[^/]+", ")"]
        end = name.end()
    return re.compile("".join([*parts, re.escape(path[end:])]))


def _checked(found: Names) -> Names:
    """Decode the values in a path; raise if one is too long or not UTF-8."""
    for name, text in found.items():
        if "%" in text:
            found[name] = text = unquote(text, errors="surrogateescape")
        if len(text) > MOST_NAME or not is_writable(text):
            raise invalid(f"{name} = {quoted(text)} is not a name that can be stored.")
    return found
