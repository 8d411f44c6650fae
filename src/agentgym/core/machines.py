"""Parse the ``gpu`` setting: a GPU of this machine, or another machine to train on."""

import re
from difflib import get_close_matches
from types import MappingProxyType

HERE = ("auto", "local", "none")
SSH = "ssh"
RENTED = MappingProxyType(
    {"runpod": "RUNPOD_API_KEY", "lambda": "LAMBDA_API_KEY", "sky": ""}
)
"""For each provider of rented machines, the environment variable with its key."""
PROVIDERS_GROUP = "agentgym.compute"

_USER, _PORT = r"(?:(?P<user>[A-Za-z_][\w.-]*)@)?", r"(?::(?P<port>[0-9]{1,5}))?"
_ADDRESS = re.compile(
    rf"{_USER}(?:\[(?P<six>[0-9a-fA-F:.]+)\]|(?P<host>\w[\w.-]*)){_PORT}"
)
_SAID = "a machine over SSH is written ssh:user@host or ssh:user@host:port"


def check_gpu(value: str) -> str:
    """Check a value of the ``gpu`` setting and return it."""
    if value in HERE:
        return value
    name, colon, rest = value.partition(":")
    if name == SSH:
        split_address(rest)
        return value
    if name in RENTED and bool(colon) == bool(rest):
        return value
    from importlib.metadata import entry_points  # takes 10 ms, and lists need none

    others = {point.name for point in entry_points(group=PROVIDERS_GROUP)}
    if name in others:
        return value
    known = [*HERE, "ssh:user@host", *RENTED, *sorted(others - set(RENTED))]
    close = get_close_matches(value, known, n=1)
    hint = f"did you mean {close[0]!r}? " if close else ""
    raise ValueError(f"{hint}known: {', '.join(known)}")


def elsewhere_hint() -> str:
    """Return a sentence that lists other machines to train on, with the keys to set."""
    keys = ", ".join(f"--gpu {n} (set {key})" for n, key in RENTED.items() if key)
    return (
        f"Other machines: {keys}, --gpu sky (clouds that SkyPilot can use), or "
        "--gpu ssh:user@host."
    )


def is_elsewhere(gpu: str) -> bool:
    """Return whether a ``gpu`` setting names a machine other than this one."""
    return gpu not in HERE


def split_address(text: str) -> tuple[str, str, int]:
    """Split ``user@host:port``, or raise ValueError; the port is 22 if missing."""
    match = _ADDRESS.fullmatch(text)
    port = int(match["port"] or 22) if match else 0
    if match is None or not 0 < port < 2**16:
        raise ValueError(_SAID)
    return match["user"] or "", match["six"] or match["host"], port
