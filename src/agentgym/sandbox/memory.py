"""MemoryGroup: limit the memory of executions with a Linux control group.

Only a control group counts all memory of programs, including shared memory that is not
mapped, temporary files, and kernel memory. A zygote (an interpreter that forks one
process per execution) joins the group, and so do its children. When the zygote is
ready, the limit is set: the memory that it uses at this time, plus the limit of an
execution.
"""

import functools
import os
import subprocess
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple, Self

from agentgym.sandbox.guest.watch import killed_at_limit

_GONE_S = 2.0


class _Names(NamedTuple):
    """File names in a control group: memory limit, swap limit, used memory, kills."""

    limit: str
    swap: str
    used: str
    deaths: str


_V1 = _Names(
    "memory.limit_in_bytes",
    "memory.memsw.limit_in_bytes",
    "memory.usage_in_bytes",
    "memory.oom_control",
)
_V2 = _Names("memory.max", "memory.swap.max", "memory.current", "memory.events")


class MemoryGroup:
    """A new control group of Linux, empty until a process joins it.

    Attributes:
        members: Descriptor of the member list: a process writes ``0`` to join the
            group; reading returns the process ids.
        deaths: Descriptor of the file that counts kills at the memory limit.
    """

    def __init__(self, parent: Path, names: _Names) -> None:
        prefix = f"agentgym-{os.getpid()}-"
        self._folder = Path(tempfile.mkdtemp(prefix=prefix, dir=parent))
        self._names = names
        try:
            self.deaths = os.open(self._folder / names.deaths, os.O_RDONLY)
        except OSError:  # This hierarchy does not limit memory.
            self._folder.rmdir()
            raise
        self.members = os.open(self._folder / "cgroup.procs", os.O_RDWR)

    @classmethod
    def make(cls) -> Self | None:
        """Create a control group; return None if this process may not do so."""
        place = _place()
        if place is None:
            return None
        _remove_left(place[0])
        with suppress(OSError):
            return cls(*place)
        return None

    def limit(self, size: int) -> None:
        """Set the memory limit to ``size`` bytes more than the group uses now."""
        size += int((self._folder / self._names.used).read_text(encoding="utf-8"))
        (self._folder / self._names.limit).write_text(str(size))
        swap = self._folder / self._names.swap
        if swap.exists():  # Version 1 counts memory and swap together.
            swap.write_text("0" if self._names is _V2 else str(size))

    @property
    def killed(self) -> int:
        """Number of the group's processes that were killed at the memory limit."""
        return killed_at_limit(self.deaths)

    def close(self) -> None:
        """Wait until the group's last process has ended, and remove the group.

        Do not wait longer than 2 seconds.
        """
        os.close(self.members)
        os.close(self.deaths)
        deadline = time.monotonic() + _GONE_S
        while time.monotonic() < deadline:
            with suppress(OSError):
                self._folder.rmdir()
                return
            time.sleep(0.01)


@functools.cache
def _place() -> tuple[Path, _Names] | None:
    """Return a folder in which new control groups work, and their file names.

    None if they work nowhere.
    """
    for parent, names in _candidates():
        with suppress(OSError, ValueError, subprocess.SubprocessError):
            group = MemoryGroup(parent, names)
            try:
                group.limit(1 << 30)
                killed_at_limit(group.deaths)
                joins = ["/bin/sh", "-c", "echo 0"]
                subprocess.run(joins, stdout=group.members, check=True, timeout=10)
            finally:
                group.close()
            return parent, names
    return None


def _candidates() -> list[tuple[Path, _Names]]:
    """Return the folders in which new control groups may work, and their file names.

    They are this process's own control group and, in version 2, the parent group. In
    version 2, a group that has processes cannot have subgroups with limits.
    """
    found = []
    with suppress(OSError):
        mounts = list(
            map(
                str.split, Path("/proc/mounts").read_text(encoding="utf-8").splitlines()
            )
        )
        for line in Path("/proc/self/cgroup").read_text(encoding="utf-8").splitlines():
            number, kinds, own = line.split(":", 2)
            for _, root, kind, options, *_ in mounts:
                place = Path(root, own.lstrip("/"))
                if number == "0" and kind == "cgroup2":
                    found += [(place, _V2), (place.parent, _V2)]
                controls = {"memory"} & {*kinds.split(",")} & {*options.split(",")}
                if kind == "cgroup" and controls:
                    found.append((place, _V1))
    return found


def _remove_left(parent: Path) -> None:
    """Remove the control groups in ``parent`` whose creating process has ended."""
    for group in parent.glob("agentgym-*"):
        owner = group.name.split("-")[1]
        if not Path("/proc", owner).exists():
            with suppress(OSError):
                group.rmdir()
