"""Find the safest kind of isolation that works on this machine.

In this code, a kind of isolation is a *rung*. A rung works if a small test program runs
with it and cannot reach the network or files outside of the sandbox.
"""

import functools
import os
import shutil
import sys
from contextlib import closing
from pathlib import Path

from agentgym.errors import SandboxError, SandboxUnavailableError
from agentgym.sandbox.commands import Job, PythonScript, SandboxConfig, SandboxResult
from agentgym.sandbox.guest.box import MountedBox
from agentgym.sandbox.guest.settings import RUNGS, Rung
from agentgym.sandbox.guest_process import GuestProcess
from agentgym.sandbox.languages import LANGUAGES, toolchain
from agentgym.sandbox.launch import own_python
from agentgym.security.redaction import get_logger

_LOG = get_logger("agentgym.sandbox")
_FOR_ROOT = ("bubblewrap", "bubblewrap-user", "landlock")
_FOR_OTHERS = ("bubblewrap-user", "landlock-user")
_PROBE_TIMEOUT_S = 10.0
_PROBE = """\
import os, socket
leaks = []
for name, call in {
    "network": lambda: socket.socket(),
    "write outside": lambda: open("/usr/agentgym-probe", "w"),
    "write to the root": lambda: os.mkdir("/agentgym-probe"),
    "environment of process 1": lambda: open("/proc/1/environ").read(),
    "password hashes": lambda: open("/etc/shadow").read(),
}.items():
    try:
        call()
        leaks.append(name)
    except OSError:
        pass
open("written", "w").close()
import wave  # Not preloaded: is the standard library readable?
print(",".join(leaks) or "sealed")
"""


def choose_rung(config: SandboxConfig) -> Rung:
    """Return the kind of isolation that ``config`` names, or the safest that works."""
    for name in config.languages:
        toolchain(name)  # raises an error if there is none
    if config.rung is not None:
        return _named(config.rung, config)
    tried = ""
    for name in _FOR_ROOT if os.geteuid() == 0 else _FOR_OTHERS:
        rung = RUNGS[name]
        reason = _unfit(rung, config) or probe(rung)
        if not reason:
            _LOG.info("sandbox rung %s: %s", rung.name, rung.summary)
            return rung
        tried += f"  - {name}: {reason}\n"
    if config.unsafe_local_exec:
        _LOG.warning("sandbox rung unsafe: code runs with no isolation")
        return RUNGS["unsafe"]
    raise SandboxUnavailableError(
        "No sandbox works on this machine, so code that a model wrote is not run.\n"
        f"Tried:\n{tried}"
        "Install bubblewrap (Debian, Ubuntu: apt-get install bubblewrap), or run on "
        "Linux 6.2 or newer with Landlock enabled. To run the code with no isolation "
        "at all, on a machine you can afford to lose, add --unsafe-local-exec."
    )


def tried(config: SandboxConfig) -> Rung:
    """Choose the kind of isolation as :func:`choose_rung` does, and test ``config``."""
    rung = choose_rung(config)
    if config.is_usual:
        return rung  # `choose_rung` has already run a program on it.
    result = _ran("", rung, config)
    if not result.ok:
        why = result.error or result.stderr.strip() or result.status.replace("_", " ")
        raise SandboxUnavailableError(
            f"Nothing can run in the requested sandbox: {why}. Look at its "
            "limits and its python_path."
        )
    return rung


def _ran(program: str, rung: Rung, config: SandboxConfig) -> SandboxResult:
    job = Job({"probe.py": program}, PythonScript("probe.py"), _PROBE_TIMEOUT_S)
    with closing(GuestProcess(rung, config)) as guest:
        return guest.run(job)


def _unfit(rung: Rung, config: SandboxConfig) -> str:
    """Return why a kind of isolation cannot run the programs of ``config``, or ""."""
    if config.links and not rung.bubblewrap:
        return "it makes no links in the root folder, which needs bubblewrap"
    if rung.forks:
        return ""
    if config.subprocesses:
        return "programs on it cannot start others, which a shell must"
    for language in map(LANGUAGES.__getitem__, config.languages):
        if language.forks:
            does = f"as the compiler of {language.title} does"
            return f"programs on it cannot start others, {does}"
    return ""


def _named(name: str, config: SandboxConfig) -> Rung:
    rung = RUNGS.get(name)
    if rung is None:
        raise SandboxError(
            f"No sandbox rung is named {name!r}. Available: {', '.join(RUNGS)}."
        )
    if not rung.isolates and not config.unsafe_local_exec:
        raise SandboxUnavailableError(
            "The rung 'unsafe' runs code with no isolation. Say so with "
            "--unsafe-local-exec (SandboxConfig.unsafe_local_exec=True)."
        )
    if reason := _unfit(rung, config):
        raise SandboxUnavailableError(
            f"The sandbox rung {name!r} cannot run this: {reason}. Install bubblewrap "
            "(Debian, Ubuntu: apt-get install bubblewrap), or run as root."
        )
    if rung.isolates and (reason := probe(rung)):
        raise SandboxUnavailableError(
            f"The sandbox rung {name!r} does not work here: {reason}"
        )
    return rung


def described(rung: Rung) -> str:
    """Describe a kind of isolation; say why an installed bubblewrap does not work."""
    reason = "" if rung.bubblewrap else _hidden()
    if not reason or shutil.which("bwrap") is None:
        return rung.in_words
    return f"{rung.in_words}; bubblewrap cannot be used: {reason}"


def _hidden() -> str:
    """Return why programs in bubblewrap cannot see this Python; "" if they can."""
    prefix = own_python().parents[1]
    for place in map(Path, MountedBox.TARGETS):
        if prefix.is_relative_to(place):
            return (
                f"the Python in {prefix} is below {place}, where each program gets an "
                "empty folder; use one that is installed elsewhere"
            )
    return ""


@functools.cache
def probe(rung: Rung) -> str:
    """Test a kind of isolation; return why it is unusable or unsafe, or "". Cached."""
    if sys.platform != "linux":
        return "it needs Linux"
    if rung.own_identity and os.geteuid() != 0:
        return "it needs root"
    if rung.bubblewrap and shutil.which("bwrap") is None:
        return "the program `bwrap` is not installed (apt-get install bubblewrap)"
    if rung.bubblewrap and (reason := _hidden()):
        return reason
    try:
        result = _ran(_PROBE, rung, SandboxConfig())
    except (SandboxError, OSError) as error:
        return str(error)
    said = result.stdout.strip()
    if said == "sealed":
        return ""
    detail = result.error or result.stderr
    return f"the probe could reach: {said}" if said else f"the probe failed: {detail}"
