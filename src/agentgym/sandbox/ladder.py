"""Find the safest rung that works here, by running a real execution under each."""

import functools
import json
import logging
import os
import shutil

from agentgym.errors import SandboxError, SandboxUnavailableError
from agentgym.sandbox import launch
from agentgym.sandbox.config import SandboxConfig
from agentgym.sandbox.guest_process import GuestDiedError, GuestProcess
from agentgym.sandbox.rungs import (
    BUBBLEWRAP,
    BUBBLEWRAP_USER,
    LANDLOCK,
    LANDLOCK_USER,
    RUNGS,
    UNSAFE,
    Rung,
)

_LOG = logging.getLogger("agentgym.sandbox")
_PROBE_TIMEOUT_S = 10.0
_PROBE = """\
import os, socket
def refused(call):
    try:
        call()
    except OSError:
        return True
    return False
leaks = [
    name for name, call in {
        "network": lambda: socket.socket(),
        "write outside": lambda: open("/usr/agentgym-probe", "w"),
        "write to the root": lambda: os.mkdir("/agentgym-probe"),
        "environment of process 1": lambda: open("/proc/1/environ").read(),
        "password hashes": lambda: open("/etc/shadow").read(),
    }.items() if not refused(call)
]
open("written", "w").close()
import wave  # Not preloaded: is the standard library readable?
print(",".join(leaks) or "sealed")
"""


def choose_rung(config: SandboxConfig) -> Rung:
    """Return the rung that a configuration asks for, or the best that works.

    Raises:
        SandboxUnavailableError: The rung asked for does not work here, or none does
            and the user did not allow unsafe execution.
        SandboxError: No rung has this name.
    """
    if config.rung is not None:
        return _named(config.rung, unsafe=config.unsafe_local_exec)
    reasons = []
    for rung in _candidates():
        reason = probe(rung)
        if not reason:
            _LOG.info("sandbox rung %s: %s", rung.name, rung.summary)
            return rung
        reasons.append(f"{rung.name}: {reason}")
    if config.unsafe_local_exec:
        _LOG.warning("sandbox rung unsafe: code runs with no isolation")
        return UNSAFE
    raise SandboxUnavailableError(_refusal(reasons))


def available_rungs() -> tuple[Rung, ...]:
    """Return the isolating rungs that work on this machine, safest first."""
    return tuple(rung for rung in RUNGS.values() if rung != UNSAFE and not probe(rung))


@functools.cache
def probe(rung: Rung) -> str:
    """Run an execution that tries to break out; return what is wrong, else "".

    It runs once per process and rung.
    """
    if not launch.supported_platform():
        return "it needs Linux"
    if rung.needs_root and os.geteuid() != 0:
        return "it needs root"
    if rung.bubblewrap and shutil.which("bwrap") is None:
        return "the program `bwrap` is not installed (apt-get install bubblewrap)"
    config = SandboxConfig()
    limits = config.limits.as_rlimits(
        _PROBE_TIMEOUT_S, count_processes=rung.counts_processes
    )
    try:
        guest = GuestProcess(rung, config)
    except (SandboxError, OSError) as error:
        return str(error)
    try:
        payload = {
            "files": {"probe.py": _PROBE},
            "command": {"kind": "script", "path": "probe.py", "args": []},
            "env": guest.env,
        }
        raw = guest.execute(
            json.dumps(payload).encode(),
            limits=limits,
            timeout_s=_PROBE_TIMEOUT_S,
            total_memory_mb=config.limits.total_memory_mb,
            output_bytes=4096,
            collect_bytes=0,
        )
    except GuestDiedError as error:
        return str(error)
    finally:
        guest.close()
    said = raw.stdout.data.decode(errors="replace").strip()
    if said == "sealed":
        return ""
    detail = bytes(raw.report.data + raw.stderr.data).decode(errors="replace")
    return f"the probe could reach: {said}" if said else f"the probe failed: {detail}"


def _candidates() -> tuple[Rung, ...]:
    """Return the rungs to try, safest first."""
    if os.geteuid() == 0:
        return BUBBLEWRAP, BUBBLEWRAP_USER, LANDLOCK
    return BUBBLEWRAP_USER, LANDLOCK_USER


def _named(name: str, *, unsafe: bool) -> Rung:
    """Return a rung by name, if it works here."""
    rung = RUNGS.get(name)
    if rung is None:
        raise SandboxError(
            f"No sandbox rung is named {name!r}. Available: {', '.join(RUNGS)}."
        )
    if rung == UNSAFE:
        if not unsafe:
            raise SandboxUnavailableError(
                "The rung 'unsafe' runs code with no isolation. Say so with "
                "--unsafe-local-exec (SandboxConfig.unsafe_local_exec=True)."
            )
        return rung
    reason = probe(rung)
    if reason:
        raise SandboxUnavailableError(
            f"The sandbox rung {name!r} does not work here: {reason}"
        )
    return rung


def _refusal(reasons: list[str]) -> str:
    """Return the message for a machine on which nothing works."""
    tried = "\n".join(f"  - {reason}" for reason in reasons)
    return (
        "No sandbox works on this machine, so code that a model wrote is not run.\n"
        f"Tried:\n{tried}\n"
        "Install bubblewrap (Debian, Ubuntu: apt-get install bubblewrap), or run on "
        "Linux 6.2 or newer with Landlock enabled. To run the code with no isolation "
        "at all, on a machine you can afford to lose, add --unsafe-local-exec."
    )
