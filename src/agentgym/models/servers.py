"""ServerPool: choose among a model's servers, and leave out failing ones."""

import time
from collections import OrderedDict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from agentgym.errors import NoServerError
from agentgym.security.redaction import get_logger

logger = get_logger(__name__)

_OUT_AFTER = 3
"""Failed calls in a row after which a server gets no calls."""
_REST_S = 1.0
LONGEST_REST_S = 60.0
_MUCH_BUSIER = (2, 4)
"""Numbers a and b: a server is much busier with more than a * x + b calls in flight,
where x is that number of the least busy server."""
_SESSIONS = 2**14
_BARRED = (
    "was gone for a while and may have been restarted, with other weights than "
    "were asked for: it gets calls again once it is given weights or registered again"
)


@dataclass(frozen=True, slots=True)
class Replicas:
    """Servers with the same model, any of which may answer.

    If ``trains`` is true, weights change while the servers run: a server that refused a
    connection gets no calls until :meth:`ServerPool.renew`.
    """

    urls: tuple[str, ...]
    model: str
    api_key: str = field(default="", repr=False)
    trains: bool = False

    def headers_of(self, url: str) -> dict[str, str] | None:
        """Return the header with the key.

        None without a key, or with one in the URL.
        """
        host = url.partition("//")[2].partition("/")[0]
        if "@" in host or not self.api_key:
            return None
        return {"Authorization": f"Bearer {self.api_key}"}


@dataclass(eq=False, slots=True)
class Server:
    """The state of a server.

    Attributes:
        out: Why the server gets no calls; empty if it gets calls.
        was_out: The last text in ``out``; empty if the server always got calls.
        is_barred: Whether the server gets no calls until :meth:`ServerPool.renew`,
            because it may have restarted with other weights.
        quiet_until: Monotonic time until which the server asked for no calls, by
            ``Retry-After``.
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
        """Sort key: number of calls in flight, then when it was last chosen."""
        return self.in_flight, self.turn

    def is_ready(self, now: float) -> bool:
        """Return whether the server gets calls and is not in a ``Retry-After`` wait."""
        return not self.out and self.quiet_until <= now


class ServerPool:
    """Chooses among the servers of one model; use it in one event loop.

    A call goes to the least busy server, but a conversation's next call to its last
    server, which has the prefix cached, unless that is much busier.
    """

    def __init__(self, on_out: Callable[[Server], None]) -> None:
        self._on_out = on_out
        self._servers: list[Server] = []
        self._sessions: OrderedDict[str, Server] = OrderedDict()
        self._turn = 0
        self.replicas = Replicas((), "")

    @property
    def troubles(self) -> list[str]:
        """Messages about servers that failed; any thread may read this property."""
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
        """Return the server to ask next, if possible not one in ``avoid``."""
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
        """Return whether a server that is not in ``avoid`` is ready."""
        return self._least_busy(avoid) is not None

    def wait_s(self) -> float:
        """Return the seconds until ``Retry-After`` allows to ask a server again."""
        up = (server for server in self._servers if not server.out)
        until = min((server.quiet_until for server in up), default=0.0)
        return max(0.0, round(until - time.monotonic(), 2))

    def answered(self, server: Server) -> None:
        """Record that a server answered."""
        if server.out and not server.is_barred:
            self.take_back(server)
        server.failures, server.rest_s = 0, _REST_S
        server.has_answered = True

    def failed(self, server: Server, why: str, *, at_once: bool = False) -> None:
        """Count a call that a server failed to answer; ``why`` follows its name."""
        server.failures += 1
        others = len(self.replicas.urls) > 1
        if others and (at_once or server.failures >= _OUT_AFTER) and not server.out:
            self._take_out(server, why)
            self._on_out(server)

    def is_gone(self, server: Server) -> None:
        """Record that nothing listens at a server's address.

        It may come back with other weights.
        """
        if self.replicas.trains and server.has_answered and not server.is_barred:
            server.is_barred = True
            self._take_out(server, _BARRED)

    def take_back(self, server: Server) -> None:
        """Let a server get calls again, until its next failure."""
        logger.info("The model server %s gets calls again.", server.url)
        server.out, server.failures = "", _OUT_AFTER - 1

    def renew(self, url: str) -> None:
        """Record that a server has the current weights: it gets calls again."""
        for server in self._servers:
            if server.url == url:
                server.out, server.is_barred, server.failures = "", False, 0
                server.rest_s = _REST_S

    def _least_busy(self, avoid: Collection[Server]) -> Server | None:
        """Return the least busy server that is ready and not in ``avoid``, or None."""
        now = time.monotonic()
        least: Server | None = None
        for server in self._servers:
            if not server.is_ready(now) or server in avoid:
                continue
            if least is None or server.load < least.load:
                least = server
        return least

    def _resort(self) -> Server:
        """Return the server to ask if no server is ready: the one that waits least."""
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
