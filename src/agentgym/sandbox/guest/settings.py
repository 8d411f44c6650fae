"""Define settings that the host and the code in the sandbox share."""

import json
from dataclasses import asdict, dataclass, field
from typing import Self

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
SYSTEM_FILES = ("/etc/ld.so.cache", "/etc/localtime", "/etc/alternatives")
DEVICES = ("/dev/null", "/dev/full", "/dev/random", "/dev/urandom")
ZERO = "/dev/zero"
"""A device that executions may read but not write: a process that can write to it can
map it as shared memory, which is not counted."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of one execution. The timeout is given with each run.

    Attributes:
        memory_mb: Address space of each process.
        total_memory_mb: Memory of all processes together. In a control group, temporary
            files and kernel memory count too. Without a control group, only resident
            memory counts, and is checked ten times a second.
        processes: Number of processes and threads at the same time.
        file_mb: Size of each written file. Also the size of each private folder (the
            workspace and temporary folders), if these folders are mounts in memory.
        disk_mb: Data that all processes together may write, if the private folders are
            on the host's disk. Overwritten and removed data counts too. Checked a few
            times a second.
        open_files: Number of open file descriptors of each process.
        output_bytes: Bytes of stdout that are kept, and as many of stderr.
        collect_bytes: Size of all changed files together, if the caller requests them.
            A file that does not fit is left out.
    """

    memory_mb: int = 512
    total_memory_mb: int = 1024
    processes: int = 32
    file_mb: int = 64
    disk_mb: int = 1024
    open_files: int = 256
    output_bytes: int = 64 * 1024
    collect_bytes: int = 1024 * 1024


@dataclass(frozen=True)
class Rung:
    """A kind of isolation. The README lists the weaknesses of each kind.

    With ``own_identity``, executions run under a reserved user id, which requires root.
    ``name`` is recorded with every result.
    """

    name: str
    summary: str
    bubblewrap: bool = False
    landlock: bool = False
    own_identity: bool = False

    @property
    def in_words(self) -> str:
        """Name and description as one text."""
        return f"{self.name} ({self.summary})"

    @property
    def isolates(self) -> bool:
        """Whether executions have more isolation than resource limits."""
        return self.bubblewrap or self.landlock

    @property
    def strict(self) -> bool:
        """Whether executions keep the caller's user id and need the strict filter."""
        return self.landlock and not self.own_identity

    @property
    def forks(self) -> bool:
        """Whether executed programs may start other programs."""
        return not self.strict

    @property
    def counts_processes(self) -> bool:
        """Whether the kernel can count, and so limit, the processes of an execution."""
        return self.own_identity or self.bubblewrap


_RUNGS = (
    Rung(
        "bubblewrap",
        "bubblewrap namespaces, own user id, rlimits, seccomp",
        bubblewrap=True,
        own_identity=True,
    ),
    Rung(
        "bubblewrap-user",
        "bubblewrap with a user namespace, rlimits, seccomp",
        bubblewrap=True,
    ),
    Rung(
        "landlock",
        "Landlock, own user id, rlimits, seccomp, sweep of the user id",
        landlock=True,
        own_identity=True,
    ),
    Rung(
        "landlock-user",
        "Landlock, rlimits, strict seccomp, no subprocesses",
        landlock=True,
    ),
    Rung("unsafe", "no isolation, rlimits only"),
)
RUNGS = {rung.name: rung for rung in _RUNGS}


@dataclass(frozen=True, kw_only=True)
class ZygoteSettings:
    """Settings of a zygote (an interpreter that forks one process per execution).

    Attributes:
        identity: User and group id that executions change to; None for no change.
        scratch: Folder on the host's disk for workspaces; None if workspaces are mounts
            in memory.
        program: The compiled seccomp filter, in hexadecimal digits.
        group: File descriptor for joining the memory control group; None without one.
        deaths: File descriptor that counts kills at the control group's memory limit;
            None without a control group.
        readable: Toolchain folders that executions may read. For ``variables`` and
            ``layers`` see ``languages.Toolchain``.
    """

    rung: Rung
    limits: Limits
    identity: int | None
    scratch: str | None
    program: str
    group: int | None
    deaths: int | None
    readable: tuple[str, ...] = ()
    variables: dict[str, str] = field(default_factory=dict)
    layers: dict[str, str] = field(default_factory=dict)

    @staticmethod
    def far_s(timeout_s: float) -> float:
        """Return the maximum wall time of an execution, in seconds."""
        return 20 * timeout_s + 10

    def encode(self) -> str:
        """Return the settings as JSON text."""
        return json.dumps({**asdict(self), "rung": self.rung.name})

    @classmethod
    def decode(cls, text: str) -> Self:
        """Return the settings from the JSON text that :meth:`encode` returned."""
        fields = json.loads(text)
        fields["rung"] = RUNGS[fields["rung"]]
        fields["limits"] = Limits(**fields["limits"])
        return cls(**fields)
