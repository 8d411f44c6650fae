"""The rungs of the ladder: how each isolates, and what it cannot do."""

from dataclasses import dataclass
from typing import Literal

Sweep = Literal["namespace", "identity", "children"]


@dataclass(frozen=True, kw_only=True)
class Rung:
    """One way of isolating executions.

    Attributes:
        name: Stable name, recorded with every result.
        summary: The mechanisms, in words.
        lost: Protections of the best rung that this one lacks.
        bubblewrap: Whether the zygote runs inside bubblewrap.
        user_namespace: Whether bubblewrap makes a user namespace, as it must when
            the caller is not root.
        own_identity: Whether each execution changes to a user id of its own slot.
        landlock: Whether each execution enters a Landlock domain of its own.
        seccomp: Whether each execution is under the system call filter.
        sweep: How leftover processes are found: all of the PID namespace, all of
            the slot's user id, or the direct and adopted children.
        needs_root: Whether only root can use it.
    """

    name: str
    summary: str
    lost: tuple[str, ...] = ()
    bubblewrap: bool = False
    user_namespace: bool = False
    own_identity: bool = False
    landlock: bool = False
    seccomp: bool = True
    sweep: Sweep
    needs_root: bool = False

    @property
    def strict(self) -> bool:
        """Whether the execution shares the caller's own user id and processes."""
        return self.landlock and not self.own_identity

    @property
    def counts_processes(self) -> bool:
        """Whether the executing user id is the sandbox's own, to be limited."""
        return self.own_identity or self.user_namespace


BUBBLEWRAP = Rung(
    name="bubblewrap",
    summary="bubblewrap namespaces, own user id, rlimits, seccomp",
    bubblewrap=True,
    own_identity=True,
    sweep="namespace",
    needs_root=True,
)
BUBBLEWRAP_USER = Rung(
    name="bubblewrap-user",
    summary="bubblewrap with a user namespace, rlimits, seccomp",
    lost=(
        "executions run under the caller's user id, mapped in a user namespace",
        "before Linux 5.14 the process limit counts all processes of the caller",
    ),
    bubblewrap=True,
    user_namespace=True,
    sweep="namespace",
)
LANDLOCK = Rung(
    name="landlock",
    summary="Landlock, own user id, rlimits, seccomp, sweep of the user id",
    lost=(
        "no namespaces: file names and sizes outside the workspace can be probed",
        "the workspace is on the host's disk, limited per file but not in total",
    ),
    own_identity=True,
    landlock=True,
    sweep="identity",
    needs_root=True,
)
LANDLOCK_USER = Rung(
    name="landlock-user",
    summary="Landlock, rlimits, strict seccomp, no subprocesses",
    lost=(
        *LANDLOCK.lost,
        "executions run under the caller's user id and may start no process",
        "changes of file metadata (chmod, utime) are ignored without an error",
    ),
    landlock=True,
    sweep="children",
)
UNSAFE = Rung(
    name="unsafe",
    summary="no isolation, rlimits only",
    lost=("everything but resource limits and time limits",),
    seccomp=False,
    sweep="children",
)
RUNGS = {
    rung.name: rung
    for rung in (BUBBLEWRAP, BUBBLEWRAP_USER, LANDLOCK, LANDLOCK_USER, UNSAFE)
}
