"""What a sandbox is asked for: limits, concurrency, which rung."""

import os
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Limits:
    """What one execution may use. Time is given with each run.

    Attributes:
        memory_mb: Address space of each process.
        total_memory_mb: Resident memory of all its processes together, looked at
            ten times a second.
        processes: Processes and threads at one time.
        file_mb: Size of each written file, and of each of the private folders where
            they are mounted.
        open_files: Open descriptors of each process.
        output_bytes: How much of stdout, and of stderr, is kept.
        collect_bytes: How much text of changed files is kept, if they are collected;
            a file that does not fit is left out.
    """

    memory_mb: int = 512
    total_memory_mb: int = 1024
    processes: int = 32
    file_mb: int = 64
    open_files: int = 256
    output_bytes: int = 64 * 1024
    collect_bytes: int = 1024 * 1024

    def as_rlimits(self, timeout_s: float, *, count_processes: bool) -> dict[str, int]:
        """Return them by the names that the ``resource`` module uses.

        Args:
            timeout_s: Wall-clock limit, which bounds the CPU time of each process.
            count_processes: Whether the executing user id is the sandbox's own, so
                that its processes can be counted.
        """
        cpu_s = int(timeout_s) + 2
        limits = {
            "RLIMIT_AS": self.memory_mb << 20,
            "RLIMIT_FSIZE": self.file_mb << 20,
            "RLIMIT_NOFILE": self.open_files,
            "RLIMIT_CPU": cpu_s,
            "RLIMIT_CORE": 0,
        }
        if count_processes:
            limits["RLIMIT_NPROC"] = self.processes
        return limits


@dataclass(frozen=True, kw_only=True)
class SandboxConfig:
    """How to open a sandbox.

    Attributes:
        rung: Name of the rung to use (see ``ladder.RUNGS``), or None for the safest
            that works on this machine.
        warm: Whether executions fork from a long-lived interpreter. A cold sandbox
            starts a new one for each.
        concurrency: Executions in flight at one time.
        limits: What one execution may use.
        cache_entries: How many results to remember; 0 for none.
        preload: Modules to import once, beyond those that are always there.
        python_path: Folders that executions may read and import from.
        env: Environment of executions, beyond the minimal one. It is readable by
            the untrusted code: put no secret here.
        unsafe_local_exec: Whether to run with no isolation at all where nothing
            better works.
    """

    rung: str | None = None
    warm: bool = True
    concurrency: int = field(default_factory=lambda: min(4, os.cpu_count() or 1))
    limits: Limits = Limits()
    cache_entries: int = 1024
    preload: tuple[str, ...] = ()
    python_path: tuple[Path, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    unsafe_local_exec: bool = False
