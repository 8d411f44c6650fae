"""Write a gateway's write requests and refused keys to the audit log."""

import time
from collections import Counter

from agentgym.rollout.gateway.http.requests import AnyRequest
from agentgym.security.audit import AuditLog

_READS = frozenset({"GET", "HEAD", "OPTIONS"})
_REFUSED = (401, 403)
_EVERY_S = 60.0
"""Refused keys of one address are logged at most once in this number of seconds, so
that a client cannot fill the log.
"""
_MOST_PEERS = 1000


class Noted:
    """Writes refused keys and write requests, e.g. of rewards, to the audit log.

    Model calls, and the requests in which workers claim rollouts, are not logged,
    because the store records them.
    """

    def __init__(self, log: AuditLog | None) -> None:
        self._log = log
        self._refused: Counter[str] = Counter()
        self._noted_at: dict[str, float] = {}

    def __call__(self, request: AnyRequest, status: int) -> None:
        """Log a request if its key was refused, or if it is a write request."""
        if self._log is None:
            return
        what, times = "gateway", 1
        if status in _REFUSED:
            many = len(self._noted_at) >= _MOST_PEERS
            peer = "others" if many else request.remote or ""
            self._refused[peer] += 1
            now = time.monotonic()
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
