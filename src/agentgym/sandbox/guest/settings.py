"""Settings shared by host and guest: the rungs, the limits, a zygote's settings."""

import json
from dataclasses import asdict, dataclass, field
from typing import Self

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
SYSTEM_FILES = ("/etc/ld.so.cache", "/etc/localtime", "/etc/alternatives")
DEVICES = ("/dev/null", "/dev/full", "/dev/random", "/dev/urandom")
ZERO = "/dev/zero"
"""May be read, not written: a writer of it could share memory that is not counted."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits of one execution. Time is given with each run.

    Attributes:
        memory_mb: Address space of each process.
        total_memory_mb: Memory of all its processes together, with temporary files
            and the kernel's memory for them, where a control group can be made;
            else their resident memory, looked at ten times a second.
        processes: Processes and threads at one time.
        file_mb: Size of each written file, and of each of the private folders where
            they are mounted.
        disk_mb: Bytes that all its processes write, where its folders are on the host's
            disk, overwritten and removed bytes included; looked at a few times a
            second.
        open_files: Open descriptors of each process.
        output_bytes: How much of stdout, and of stderr, is kept.
        collect_bytes: How much text of changed files is kept, if they are collected;
            a file that does not fit is left out.
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
    """One way of isolating executions; the README lists the weaknesses of each.

    Attributes:
        name: Stable name, recorded with every result.
        summary: The mechanisms, in words.
        bubblewrap: Whether the zygote runs inside bubblewrap.
        landlock: Whether each execution enters a Landlock domain of its own.
        own_identity: Whether executions change to a user id of their zygote's own,
            which only root can do.
    """

    name: str
    summary: str
    bubblewrap: bool = False
    landlock: bool = False
    own_identity: bool = False

    @property
    def in_words(self) -> str:
        """Its name and its mechanisms."""
        return f"{self.name} ({self.summary})"

    @property
    def isolates(self) -> bool:
        """Whether anything but limits keeps an execution in; if so, seccomp does."""
        return self.bubblewrap or self.landlock

    @property
    def strict(self) -> bool:
        """Whether the execution shares the caller's own user id and processes."""
        return self.landlock and not self.own_identity

    @property
    def forks(self) -> bool:
        """Whether programs may start other programs."""
        return not self.strict

    @property
    def counts_processes(self) -> bool:
        """Whether the executing user id is the sandbox's own, to be limited."""
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
    """Settings of a zygote; they hold for all of its executions.

    Attributes:
        rung: How they are isolated.
        limits: Limits of each execution.
        identity: User and group id to change to, on a rung that changes it.
        scratch: Folder for workspaces, where they cannot be mounted.
        program: The seccomp filter, compiled, in hexadecimal digits.
        group: Descriptor of the members of the control group to join, if any.
        deaths: Descriptor with the number of kills at its memory limit.
        readable: Folders of toolchains, where Landlock must allow them.
        variables: Environment variables of executions; ``{tmp}`` stands for their
            temporary folder.
        layers: Ready-made folders: executions get a folder of this name below their
            temporary one, with links to the entries of the ready-made one.
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
        """Return how long an execution may take by the clock, in seconds."""
        return 20 * timeout_s + 10

    def encode(self) -> str:
        """Return them as JSON."""
        return json.dumps({**asdict(self), "rung": self.rung.name})

    @classmethod
    def decode(cls, text: str) -> Self:
        """Parse the text of :meth:`encode`."""
        fields = json.loads(text)
        fields["rung"] = RUNGS[fields["rung"]]
        fields["limits"] = Limits(**fields["limits"])
        return cls(**fields)
