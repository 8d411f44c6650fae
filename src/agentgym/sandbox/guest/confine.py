"""Give up every right that an execution does not need, in the one safe order.

Each step either succeeds or raises; a child whose confinement raised runs nothing.
"""

import os
import resource
import signal
from dataclasses import dataclass

from . import landlock, libc, seccomp

DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")


@dataclass(frozen=True, kw_only=True)
class Confinement:
    """What applies to every child of one zygote.

    Attributes:
        identity: User and group id to change to, or None to keep the present one.
        drop_capabilities: Whether capabilities must be dropped by hand, because the
            user id does not change.
        landlock: Whether to enter a Landlock domain.
        seccomp: Whether to install the system call filter.
        strict: Whether the filter is the strict one; see ``seccomp``.
        readable: Trees that a Landlock domain may read.
    """

    identity: int | None
    drop_capabilities: bool
    landlock: bool
    seccomp: bool
    strict: bool
    readable: tuple[str, ...]


def set_limits(limits: dict[str, int]) -> None:
    """Set hard and soft resource limits, by the names of ``resource``."""
    for name, value in limits.items():
        kind: int = resource.__dict__[name]
        _, hard = resource.getrlimit(kind)
        if hard != resource.RLIM_INFINITY:
            value = min(value, hard)
        resource.setrlimit(kind, (value, value))


def become(identity: int) -> None:
    """Change to an unprivileged user and group for good.

    Raises:
        PermissionError: The change did not take effect.
    """
    if identity <= 0:
        raise PermissionError(f"{identity} is no unprivileged user id")
    os.setgroups([])
    os.setresgid(identity, identity, identity)
    os.setresuid(identity, identity, identity)
    if os.getresuid() != (identity,) * 3 or os.getresgid() != (identity,) * 3:
        raise PermissionError(f"could not become user {identity}")


def drop_identity(confinement: Confinement) -> None:
    """Change user and drop capabilities, as far as this rung does."""
    if confinement.identity is not None:
        become(confinement.identity)
        libc.prctl(libc.PR_SET_DUMPABLE, 1)  # Else its own /proc/self is closed to it.
    if confinement.identity is not None or confinement.drop_capabilities:
        libc.drop_capabilities()


def lock(confinement: Confinement, writable: tuple[str, ...]) -> None:
    """Enter the Landlock domain and install the system call filter.

    Args:
        confinement: What applies.
        writable: The trees of this execution alone.
    """
    if confinement.seccomp or confinement.landlock:
        libc.prctl(libc.PR_SET_PDEATHSIG, signal.SIGKILL)
        libc.prctl(libc.PR_SET_NO_NEW_PRIVS, 1)
    if confinement.landlock:
        landlock.restrict(
            readable=confinement.readable, writable=writable, devices=DEVICES
        )
    if confinement.seccomp:
        program = seccomp.build_filter(strict=confinement.strict, pid=os.getpid())
        seccomp.install(program)
