"""Several servers of one model: which is asked next, and which is left alone."""

import time
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from agentgym.errors import NoServerError
from agentgym.security.redaction import get_logger

logger = get_logger(__name__)

_OUT_AFTER = 3
"""Calls in a row, none of them answered, after which a server is taken out."""
_REST_S = 1.0
LONGEST_REST_S = 60.0
_MUCH_BUSIER = (2, 4)
"""A session stays where its prefix is cached up to so many times the calls in flight
of the least busy server, and so many more."""
_SESSIONS = 2**14
_BARRED = (
    "was gone for a while and may have been restarted, with other weights than "
    "were asked for: it gets calls again once it is given weights or registered again"
)


@dataclass(frozen=True, slots=True)
class Replicas:
    """Servers that have the same model, any of which may answer.

    Attributes:
        urls: Their base URLs.
        model: The model's name there.
        api_key: Bearer key of all of them, empty if none is needed.
        trains: Whether the weights are changed while the servers run. Then one that was
            gone does not come back by itself, and one that comes back must list the
            model.
    """

    urls: tuple[str, ...]
    model: str
    api_key: str = field(default="", repr=False)
    trains: bool = False

    @property
    def headers(self) -> dict[str, str] | None:
        """The HTTP headers with the servers' key."""
        key = self.api_key
        return {"Authorization": f"Bearer {key}"} if key else None

    def headers_of(self, url: str) -> dict[str, str] | None:
        """Return a server's headers: without the key if its address has a password."""
        host = url.partition("//")[2].partition("/")[0]
        return None if "@" in host else self.headers


@dataclass(eq=False, slots=True)
class Server:
    """The state of a server.

    Attributes:
        url: Its base URL.
        in_flight: Calls that it is answering.
        out: Why it gets no calls; empty while it does.
        was_out: Why it got none last; empty if it always did.
        is_barred: Whether it stays out until :meth:`ServerPool.renew`.
        rest_s: Seconds until it is looked at again while it is out.
        quiet_until: Monotonic time until which it asked to be spared.
    """

    url: str
    in_flight: int = 0
    out: str = ""
    was_out: str = ""
    is_barred: bool = False
    rest_s: float = _REST_S
    quiet_until: float = 0.0
    failures: int = 0
    has_answered: bool = False
    turn: int = 0

    @property
    def load(self) -> tuple[int, int]:
        """The order of servers: the smallest is asked next."""
        return self.in_flight, self.turn

    def is_ready(self, now: float) -> bool:
        """Say whether it gets calls, and has not asked to be spared."""
        return not self.out and self.quiet_until <= now


class ServerPool:
    """Knows the servers of one model; belongs to one event loop.

    The one with the fewest calls in flight is asked, of several the one asked longest
    ago. A session's next call goes where its last one went, which has its prefix
    cached, unless that server is much busier than another.

    Args:
        on_out: Called with a server that was taken out and may come back.
    """

    def __init__(self, on_out: Callable[[Server], None]) -> None:
        self._on_out = on_out
        self._servers: list[Server] = []
        self._sessions: OrderedDict[str, Server] = OrderedDict()
        self._turn = 0
        self.replicas = Replicas((), "")

    @property
    def troubles(self) -> list[str]:
        """Sentences on servers that failed. Any thread."""
        every = [(s.url, s.out, s.was_out) for s in self._servers if s.was_out]
        return [
            f"The model server {url} gets no calls: it {out}."
            if out
            else f"The model server {url} got no calls for a while: it {was_out}."
            for url, out, was_out in every
        ]

    def choose(
        self, replicas: Replicas, session: str, avoid: Collection[Server] = ()
    ) -> Server:
        """Return the server to ask next.

        Where all are out, a call is the probe: the one asked longest ago is asked.

        Args:
            replicas: Those that may answer.
            session: Calls with the same one have a prefix in common.
            avoid: Asked only if there is no other.

        Raises:
            NoServerError: None of them may answer; says why.
        """
        every = self._known(replicas)
        if len(every) == 1 and not every[0].is_barred:
            return every[0]
        chosen = self._least_busy(avoid) or self._least_busy(()) or self._resort()
        usual = self._sessions.get(session)
        if usual is not chosen and usual in every and usual not in avoid:
            times, more = _MUCH_BUSIER
            is_busy = usual.in_flight > times * chosen.in_flight + more
            if usual.is_ready(time.monotonic()) and not is_busy:
                chosen = usual
        self._turn += 1
        chosen.turn = self._turn
        self._sessions[session] = chosen
        self._sessions.move_to_end(session)
        if len(self._sessions) > _SESSIONS:
            self._sessions.popitem(last=False)
        return chosen

    def has_other(self, avoid: Collection[Server]) -> bool:
        """Say whether a server is up, besides some, and has not asked to be spared."""
        return self._least_busy(avoid) is not None

    def wait_s(self) -> float:
        """Return the seconds until no server that is up asks to be spared."""
        up = (server for server in self._servers if not server.out)
        until = min((server.quiet_until for server in up), default=0.0)
        return max(0.0, round(until - time.monotonic(), 2))

    def answered(self, server: Server) -> None:
        """Count an answer: the server is well."""
        if server.out and not server.is_barred:
            self.take_back(server)
        server.failures, server.rest_s = 0, _REST_S
        server.has_answered = True

    def failed(self, server: Server, why: str, *, at_once: bool = False) -> None:
        """Count a call that a server did not answer.

        Args:
            server: The server.
            why: The error, as a phrase that follows its name.
            at_once: Whether it is taken out whatever happened before.
        """
        server.failures += 1
        others = len(self.replicas.urls) > 1
        if others and (at_once or server.failures >= _OUT_AFTER) and not server.out:
            self._take_out(server, why)
            self._on_out(server)

    def is_gone(self, server: Server) -> None:
        """Note that nothing listens there, so that it may come back as another."""
        if self.replicas.trains and server.has_answered and not server.is_barred:
            server.is_barred = True
            self._take_out(server, _BARRED)

    def take_back(self, server: Server) -> None:
        """Give a server calls again; one failure takes it out again."""
        logger.info("The model server %s gets calls again.", server.url)
        server.out, server.failures = "", _OUT_AFTER - 1

    def renew(self, url: str) -> None:
        """Reset a server's failures: it has the current weights."""
        for server in self._servers:
            if server.url == url:
                server.out, server.is_barred, server.failures = "", False, 0
                server.rest_s = _REST_S

    def _least_busy(self, avoid: Collection[Server]) -> Server | None:
        """Return the server to ask of those that are ready, None if none is."""
        now = time.monotonic()
        least: Server | None = None
        for server in self._servers:
            if not server.is_ready(now) or server in avoid:
                continue
            if least is None or server.load < least.load:
                least = server
        return least

    def _resort(self) -> Server:
        """Return the server to ask where none is ready.

        Raises:
            NoServerError: None of them may answer; says why.
        """
        able = [server for server in self._servers if not server.is_barred]
        if not able:
            message = "; ".join(
                f"{server.url} {server.out}" for server in self._servers
            )
            raise NoServerError(f"No model server may answer: {message}.")
        up = [server for server in able if not server.out]
        now = time.monotonic()
        return min(up or able, key=lambda s: (max(s.quiet_until, now), s.turn))

    def _known(self, replicas: Replicas) -> list[Server]:
        if replicas is not self.replicas:
            before = {server.url: server for server in self._servers}
            urls = dict.fromkeys(replicas.urls)
            self._servers = [before.get(url) or Server(url) for url in urls]
            self.replicas = replicas
        return self._servers

    def _take_out(self, server: Server, why: str) -> None:
        server.out = server.was_out = why
        logger.warning("The model server %s gets no calls: it %s.", server.url, why)
