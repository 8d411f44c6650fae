"""Define settings and functions that the host and the code in the sandbox use."""

import json
import os
from dataclasses import asdict, dataclass, field
from typing import Self

SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")
SYSTEM_FILES = ("/etc/ld.so.cache", "/etc/localtime", "/etc/alternatives")
DEVICES = ("/dev/null", "/dev/full", "/dev/random", "/dev/urandom")
# A device that executions may read but not write: a process that can write to it can
# map it as shared memory, which is not counted.
ZERO = "/dev/zero"


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Maximum resources of one execution. The time limit is an argument of each run.

    Attributes:
        memory_mb: Address space of each process, in MiB.
        total_memory_mb: Memory of all processes in total, in MiB. In a control group,
            temporary files and kernel memory count too. Without a control group, only
            resident memory counts, and it is checked ten times a second.
        processes: Number of processes and threads at the same time.
        file_mb: Size of each written file, in MiB. If the workspace and the temporary
            folders are mounts in memory, also the size of each of these folders.
        disk_mb: Data that all processes may write in total, in MiB, if the workspace is
            on the host's disk. Overwritten and removed data counts too. Checked a few
            times a second.
        open_files: Number of open file descriptors of each process.
        output_bytes: Number of bytes to keep of stdout, and the same of stderr.
        collect_bytes: Total size of the changed files in a result, if they are
            requested. A file that does not fit is left out.
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
    """A kind of isolation for executions, such as bubblewrap or Landlock.

    Attributes:
        own_identity: Whether executions run under a reserved user id. This requires
            root.
    """

    name: str
    summary: str
    bubblewrap: bool = False
    landlock: bool = False
    own_identity: bool = False

    @property
    def in_words(self) -> str:
        """The name and the description as one text."""
        return f"{self.name} ({self.summary})"

    @property
    def isolates(self) -> bool:
        """Whether executions are isolated at all, not only limited in resources."""
        return self.bubblewrap or self.landlock

    @property
    def strict(self) -> bool:
        """Whether the caller's user id is kept, which needs the strict seccomp filter.

        Executions then cannot start other programs.
        """
        return self.landlock and not self.own_identity

    @property
    def forks(self) -> bool:
        """Whether executed programs may start other programs."""
        return not self.strict

    @property
    def counts_processes(self) -> bool:
        """Whether the kernel can limit the number of an execution's processes."""
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
        scratch: Folder on the host's disk for workspaces; None if workspaces are mounts
            in memory.
        group: File descriptor for joining the memory control group; None without one.
        deaths: File descriptor that counts kills at the control group's memory limit;
            None without a control group.
        variables: Environment variables that toolchains need; ``{tmp}`` is replaced by
            the execution's temporary folder.
        layers: Folders of prepared files to link into the execution's temporary folder,
            by the names that they get.
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
        """Return the most wall seconds of an execution; its timeout counts less."""
        return 20 * timeout_s + 10

    def encode(self) -> str:
        """Return the settings as JSON text."""
        return json.dumps({**asdict(self), "rung": self.rung.name})

    @classmethod
    def decode(cls, text: str) -> Self:
        """Parse the JSON text that :meth:`encode` returned."""
        fields = json.loads(text)
        fields["rung"] = RUNGS[fields["rung"]]
        fields["limits"] = Limits(**fields["limits"])
        return cls(**fields)


def killed_at_limit(deaths: int) -> int:
    """Return the number of processes killed at a control group's memory limit."""
    words = os.pread(deaths, 4096, 0).split()
    return int(words[words.index(b"oom_kill") + 1])
