"""PageKeys: refuse all requests that do not come from the viewer's own page."""

import hmac
from collections.abc import Callable
from urllib.parse import urlsplit

from agentgym.core.openai import ApiError
from agentgym.rollout.gateway.http.direct import DirectRequest
from agentgym.rollout.gateway.http.keys import Keys
from agentgym.rollout.gateway.http.requests import Request

TOKEN_HEADER = "x-agentgym-token"
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
"""Response headers that forbid inline scripts, other hosts, and embedding the page."""
_API = "/api/"


class PageKeys(Keys):
    """Accepts only requests of the viewer's own page.

    Pages of other sites could also send requests to this machine. Such a request has
    another ``Origin``, or another ``Host`` if the site's DNS name was pointed at this
    machine. Requests for data also need the token, which only the printed address
    contains. ``address`` returns the server's base URL.
    """

    def __init__(self, token: str, address: Callable[[], str]) -> None:
        super().__init__("")
        self._token = token.encode()
        self._address = address

    def check(self, request: Request | DirectRequest) -> None:
        """Check the host, the origin and the token of a request.

        Raises:
            ApiError: Status 403: the request is for another host or from another site.
                401: the token is missing or wrong. 405: the method may change data.
        """
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
