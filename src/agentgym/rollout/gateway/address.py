"""Check the host, the port and the API key of a server before it listens."""

import errno
import ipaddress

from agentgym.errors import UsageError

_MOST_PORT = 65_535


def check_address(host: str, port: int, api_key: str | None, *, how: str) -> None:
    """Check a server's host, port and API key; raise UsageError if one is invalid.

    A host that other machines can reach needs a key. Port 0 stands for any free port.
    An ``api_key`` of None or "" means that requests need no key. ``how`` ends the error
    message about a missing key: how to set one, e.g. ``with --api-key``.
    """
    if not 0 <= port <= _MOST_PORT:
        raise UsageError(
            f"{port} is not a port: give one from 1 to {_MOST_PORT:,}, or 0 for a free "
            "one."
        )
    if api_key is not None and not (api_key.isascii() and api_key.isprintable()):
        raise UsageError("The API key has characters that no HTTP header can hold.")
    if api_key and api_key != api_key.strip():
        raise UsageError(
            "The API key begins or ends with a space, which a header cannot hold: "
            "remove it."
        )
    if not api_key and not is_own(host):
        raise UsageError(
            f"Any machine that reaches {host} could use the model: on another address "
            f"than 127.0.0.1 give a key, {how}."
        )


def why_unusable(host: str, port: int, error: OSError) -> str:
    """Return an error message: why a server cannot listen, and the remedy."""
    if error.errno == errno.EADDRINUSE:
        return (
            f"Port {port} of {host} is taken by another program: give another with "
            "--port, or 0 for a free one."
        )
    if error.errno == errno.EACCES:
        return f"Port {port} needs root rights: give 1024 or higher with --port."
    return f"{host} cannot be listened on: {error.strerror or error}."


def is_own(host: str) -> bool:
    """Return whether a host is a loopback address, e.g. ``127.0.0.1``."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
