"""Check addresses to listen on: whether they are valid, and whether they need a key."""

import errno
import ipaddress

from agentgym.errors import UsageError

_MOST_PORT = 65_535


def check_address(host: str, port: int, api_key: str | None, *, how: str) -> None:
    """Refuse an invalid address, and one that is open to others without a key.

    Args:
        host: Of the address.
        port: 0 is a free one.
        api_key: None or empty if none is asked for.
        how: How a key is given, in words.

    Raises:
        UsageError: Says which.
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
            "The API key begins or ends with a blank, which a header cannot "
            "hold: remove it."
        )
    if not api_key and not _is_own(host):
        raise UsageError(
            f"Any machine that reaches {host} could use the model: on another "
            "address than "
            f"127.0.0.1 give a key, {how}."
        )


def why_unusable(host: str, port: int, error: OSError) -> str:
    """Return why an address cannot be listened on, and what to do."""
    if error.errno == errno.EADDRINUSE:
        return (
            f"Port {port} of {host} is taken by another program: give another with "
            "--port, or 0 for a free one."
        )
    if error.errno == errno.EACCES:
        return f"Port {port} needs more rights: give one from 1,024 on with --port."
    return f"{host} cannot be listened on: {error.strerror or error}."


def _is_own(host: str) -> bool:
    """Say whether an address can be reached from this machine alone."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
