"""Keys: the operator's key allows everything, an agent's key only model calls.

The operator is the user who started the server.
"""

import hmac
from typing import TYPE_CHECKING

from agentgym.core.openai import ApiError

if TYPE_CHECKING:
    from agentgym.rollout.gateway.http.requests import Request

_FREE = ("/healthz",)
_AGENTS = "/proxy/rollout/"
_PURPOSE = b"agentgym: an agent's model calls"


def agent_key(api_key: str) -> str:
    """Derive the key for agents from the operator's key ``api_key``.

    The operator's key cannot be computed from the key for agents. If ``api_key`` is
    empty, the result is empty, and agents need no key.
    """
    if not api_key:
        return ""
    made = hmac.new(api_key.encode(errors="surrogateescape"), _PURPOSE, "sha256")
    return f"agent-{made.hexdigest()[:40]}"


class Keys:
    """Checks a request's API key, and whether that key allows the request.

    If the operator's ``api_key`` is empty, requests need no key. With ``for_agents``,
    the key from :func:`agent_key` is accepted for model calls, too.
    """

    def __init__(self, api_key: str, *, for_agents: bool = False) -> None:
        self._known = [("operator", api_key.encode(errors="surrogateescape"))]
        if for_agents:
            self._known.append(("agent", agent_key(api_key).encode()))
        self._is_open = not api_key

    def check(self, request: "Request") -> None:
        """Check a request's key, and store the kind of the key in ``request.key``."""
        path = request.path
        if self._is_open or path in _FREE:
            request.key = "none"
            return
        given = request.header("authorization")
        given = given[7:] if given.startswith("Bearer ") else ""
        who = self._owner(given) or self._owner(request.header("x-api-key"))
        if who is None:
            message, kind = "Invalid or missing API key", "authentication_error"
            raise ApiError(401, message, "invalid_api_key", kind)
        request.key = who
        if who == "agent" and not path.startswith(_AGENTS):
            message = "This is an agent's key: it only allows calls of the model."
            raise ApiError(403, message, "agent_key", "permission_error")

    def _owner(self, given: str) -> str | None:
        if not given:
            return None
        sent = given.encode(errors="surrogateescape")
        return next((n for n, k in self._known if hmac.compare_digest(sent, k)), None)
