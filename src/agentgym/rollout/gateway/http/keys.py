"""Keys: the operator's opens everything, an agent's only asks the model."""

import hmac
from typing import TYPE_CHECKING

from agentgym.core.openai import ApiError

if TYPE_CHECKING:
    from agentgym.rollout.gateway.http.direct import DirectRequest
    from agentgym.rollout.gateway.http.requests import Request

_FREE = ("/healthz",)
_AGENTS = "/proxy/rollout/"
_PURPOSE = b"agentgym: an agent's model calls"


def agent_key(api_key: str) -> str:
    """Return the key for agents that belongs to an operator's key.

    It follows from that one, so that a starter of agents can compute it; the reverse is
    impossible. Without a key agents need none either.
    """
    if not api_key:
        return ""
    made = hmac.new(api_key.encode(errors="surrogateescape"), _PURPOSE, "sha256")
    return f"agent-{made.hexdigest()[:40]}"


class Keys:
    """Says who makes a request, and whether that one may.

    Args:
        api_key: The operator's key; empty asks for none.
        for_agents: Whether there is a key for agents as well.
    """

    def __init__(self, api_key: str, *, for_agents: bool = False) -> None:
        self._known = [("operator", api_key.encode(errors="surrogateescape"))]
        if for_agents:
            self._known.append(("agent", agent_key(api_key).encode()))
        self._is_open = not api_key

    def check(self, request: "Request | DirectRequest") -> None:
        """Note whose key a request has.

        Raises:
            ApiError: 401; it has none that is known. 403; it may not do this.
        """
        path = request.path
        if self._is_open or path in _FREE:
            request.key = "none"
            return
        given = request.header("authorization")
        given = given[7:] if given.startswith("Bearer ") else ""
        who = self._owner(given) or self._owner(request.header("x-api-key"))
        if who is None:
            kind = "authentication_error"
            message = "Invalid or missing API key"
            raise ApiError(401, message, "invalid_api_key", kind)
        request.key = who
        if who == "agent" and not path.startswith(_AGENTS):
            message = "This is an agent's key: it may ask the model, and nothing else."
            raise ApiError(403, message, "agent_key", "permission_error")

    def know(self, request: "Request | DirectRequest") -> bool:
        """Say whether :meth:`check` lets a request pass."""
        try:
            self.check(request)
        except ApiError:
            return False
        return True

    def _owner(self, given: str) -> str | None:
        if not given:
            return None
        sent = given.encode(errors="surrogateescape")
        return next((n for n, k in self._known if hmac.compare_digest(sent, k)), None)
