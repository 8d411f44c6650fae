"""Settings shared by host and guest: rungs, limits, a zygote's settings."""

import json
from dataclasses import asdict, dataclass, field
from typing import Self

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
SYSTEM_FILES = ("/etc/ld.so.cache", "/etc/localtime", "/etc/alternatives")
DEVICES = ("/dev/null", "/dev/full", "/dev/random", "/dev/urandom")
ZERO = "/dev/zero"
"""Readable, not writable: a writer could share uncounted memory through it."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of one execution. The timeout is given with each run.

    Attributes:
        memory_mb: Address space of each process, in MB.
        total_memory_mb: Memory of all its processes together, with temporary files and
            kernel memory if a control group can be made; otherwise their resident
            memory, checked ten times a second.
        processes: Most processes and threads at the same time.
        file_mb: Largest written file, and size of each private folder if it is mounted.
        disk_mb: Megabytes that all its processes may write if its folders are on the
            host's disk, overwritten and removed data included; checked a few times a
            second.
        open_files: Most open descriptors of each process.
        output_bytes: Most bytes to keep of stdout, and of stderr.
        collect_bytes: Most bytes of changed files to return, if requested; a file that
            does not fit is left out.
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
    """One kind of isolation; the README lists each one's weaknesses.

    Attributes:
        name: Stable name, recorded with every result.
        summary: Description of the mechanisms.
        bubblewrap: Whether the zygote runs inside bubblewrap.
        landlock: Whether each execution enters its own Landlock domain.
        own_identity: Whether executions change to a user id of their zygote, which
            requires root.
    """

    name: str
    summary: str
    bubblewrap: bool = False
    landlock: bool = False
    own_identity: bool = False

    @property
    def in_words(self) -> str:
        """Its name and description."""
        return f"{self.name} ({self.summary})"

    @property
    def isolates(self) -> bool:
        """Whether there is isolation beyond limits; if so, seccomp is used too."""
        return self.bubblewrap or self.landlock

    @property
    def strict(self) -> bool:
        """Whether the execution shares the caller's user id and processes."""
        return self.landlock and not self.own_identity

    @property
    def forks(self) -> bool:
        """Whether programs may start other programs."""
        return not self.strict

    @property
    def counts_processes(self) -> bool:
        """Whether executions have their own user id, so that processes are limited."""
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
    """Settings of a zygote for all of its executions.

    Attributes:
        rung: Their kind of isolation.
        limits: Limits of each execution.
        identity: User and group id to change to, on rungs that do.
        scratch: Folder for workspaces if they cannot be mounted.
        program: The compiled seccomp filter, in hexadecimal digits.
        group: Descriptor for joining the control group, if there is one.
        deaths: Descriptor with the number of kills at the group's memory limit.
        readable: Toolchain folders that Landlock must allow.
        variables: Environment variables of executions; ``{tmp}`` is replaced by their
            temporary folder.
        layers: Prepared folders: executions get a folder of this name in their
            temporary folder, with links to the prepared entries.
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
        """Return the longest wall time of an execution, in seconds."""
        return 20 * timeout_s + 10

    def encode(self) -> str:
        """Return the settings as JSON."""
        return json.dumps({**asdict(self), "rung": self.rung.name})

    @classmethod
    def decode(cls, text: str) -> Self:
        """Parse the result of :meth:`encode`."""
        fields = json.loads(text)
        fields["rung"] = RUNGS[fields["rung"]]
        fields["limits"] = Limits(**fields["limits"])
        return cls(**fields)
