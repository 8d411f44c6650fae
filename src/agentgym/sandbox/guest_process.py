"""GuestProcess: start a zygote, send it executions (jobs), and read the results."""

import functools
import json
import os
import select
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, Self

from agentgym.core.files import scratch_folder
from agentgym.errors import SandboxError
from agentgym.sandbox import launch
from agentgym.sandbox.commands import Job, SandboxConfig, SandboxResult, complete
from agentgym.sandbox.filter import build_filter
from agentgym.sandbox.guest.box import remove_tree
from agentgym.sandbox.guest.settings import Rung, ZygoteSettings, killed_at_limit
from agentgym.sandbox.languages import toolchain
from agentgym.sandbox.launch import (
    INSIDE,
    PythonHome,
    entries,
    readable_trees,
    signature,
)

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
        """Wait up to 2 seconds for the group's last process, and remove the group."""
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
    """Return folders in which new control groups may work, and their file names.

    In version 2, a group that has processes cannot have subgroups with limits.
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


_START_S = 30.0
_GRACE_S = 15.0
# Seconds to clean up and to collect files, after the longest time of an execution.
_ANSWER_S = 300.0
_OVER_MEMORY = "The sandbox process ran out of memory because of the execution."
_REPORT_BYTES = 4 << 20
_MOST_READ = 16 << 20
_OVER_OUTPUT = "It wrote more output than is read, 16 MB, and waited."


class GuestDiedError(SandboxError):
    """A zygote ended or stopped answering.

    ``started``: whether the execution had begun.
    """

    started = False


@dataclass
class _Stream:
    """Reads a pipe; keeps the first ``keep`` bytes, and counts all bytes."""

    descriptor: int
    keep: int
    data: bytearray = field(default_factory=bytearray)
    seen: int = 0
    open: bool = True

    def read(self) -> bool:
        """Read available bytes; return False if there are none, or at the end."""
        try:
            chunk = os.read(self.descriptor, 65536)
        except BlockingIOError:
            return False
        self.seen += len(chunk)
        self.data += chunk[: max(0, self.keep - len(self.data))]
        self.open = bool(chunk) and self.seen <= _MOST_READ
        return self.open


class GuestProcess:
    """Starts a zygote (an interpreter in the sandbox), and runs executions in it.

    The kernel kills the zygote when the thread that created this object ends. If
    ``spoiled``, it has to be closed.
    """

    def __init__(self, rung: Rung, config: SandboxConfig) -> None:
        self._rung = rung
        self._config = config
        self._buffer = b""
        self.spoiled = False
        # Signature of `python_path` when it was copied; None without a copy.
        self._copied: bytes | None = None
        self._owned = ExitStack()
        self._group = MemoryGroup.make()
        if self._group is not None:
            self._owned.callback(self._group.close)
        try:
            self._start()
            self._wait_for("serving", time.monotonic() + _START_S)
            if self._group is not None:
                self._group.limit(config.limits.total_memory_mb << 20)
        except (GuestDiedError, OSError) as error:
            self.close()
            raise SandboxError(
                f"The sandbox rung {rung.name!r} did not start: {error}"
            ) from error

    def _start(self) -> None:
        """Start the zygote with the files that it needs; :meth:`close` removes them."""
        rung, config = self._rung, self._config
        identity: int | None = None
        if os.geteuid() == 0 and rung.isolates:
            identity, lock = launch.reserve_identity()
            self._owned.enter_context(lock)
        start_as = None if rung.own_identity else identity
        sees_ours = identity is None or (rung.bubblewrap and rung.own_identity)
        python = launch.own_python() if sees_ours else launch.readable_python()
        guest, scratch = launch.GUEST, None
        hidden = start_as is not None and not launch.readable_by_anyone(guest)
        folders = list(config.python_path)
        copies = bool(folders) and identity is not None
        if hidden or copies or not rung.bubblewrap:
            scratch = self._owned.enter_context(scratch_folder("sandbox"))
            self._owned.callback(_remove, scratch)
            scratch.chmod(0o711)  # Executions can pass through but not list it.
            if hidden:
                guest = shutil.copytree(guest, scratch / "guest")
            if copies:
                before = signature(folders)
                folders = readable_trees(folders, scratch, reachable=sees_ours)
                if folders != [*config.python_path]:
                    self._copied = before
        mounted = (INSIDE / "path" / str(number) for number in range(len(folders)))
        home = PythonHome(python, INSIDE / "python", tuple(mounted))
        mounts: list[str] = []
        contents: list[int] = []
        tools = [toolchain(name, reachable=sees_ours) for name in config.languages]
        trees = [tree for tool in tools for tree in tool.trees]
        variables, layers = dict[str, str](), dict[str, str]()
        for tool in tools:
            variables |= tool.variables
            layers |= tool.layers
        if rung.bubblewrap:
            mounts, contents = home.mounts(folders, self._owned)
            for tree in trees:
                mounts += launch.shown(tree, tree)
            for name, target in config.links:
                mounts += ["--symlink", target, name]
        elif scratch:
            home = PythonHome(python, scratch / "python", tuple(folders))
            home.write()
        if scratch and start_as is not None:  # The zygote can then remove them itself.
            for path, _ in [*entries(scratch)]:
                os.chown(path, start_as, start_as, follow_symlinks=False)
        settings = ZygoteSettings(
            rung=rung,
            limits=config.limits,
            identity=identity if rung.own_identity else None,
            scratch=str(scratch) if scratch and not rung.bubblewrap else None,
            program=self._filter().hex(),
            group=self._group.members if self._group else None,
            deaths=self._group.deaths if self._group else None,
            readable=tuple(map(str, trees)),
            variables=variables,
            layers=layers,
        )
        self._log = tempfile.TemporaryFile()  # noqa: SIM115
        self._owned.enter_context(self._log)
        self._control, theirs = socket.socketpair()
        self._owned.enter_context(self._control)
        shared = (self._group.members, self._group.deaths) if self._group else ()
        with theirs:
            self.process = subprocess.Popen(
                launch.command_line(settings, home, guest, theirs.fileno(), mounts),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=self._log,
                pass_fds=(theirs.fileno(), *shared, *contents),
                env=launch.environment(
                    home, [tool.bin for tool in tools if tool.bin is not None]
                ),
                cwd="/",
                start_new_session=True,
                user=start_as,
                group=start_as,
                extra_groups=None if start_as is None else [],
            )
        self._owned.callback(self._end)

    def _filter(self) -> bytes:
        """Return the compiled seccomp filter; empty if executions are not isolated."""
        if not self._rung.isolates:
            return b""
        counted = self._group is not None or not self._rung.forks
        return build_filter(
            strict=self._rung.strict,
            shared_memory=counted,
            mounted=self._rung.bubblewrap,
        )

    def is_stale(self) -> bool:
        """Return whether copied files of ``python_path`` have changed."""
        folders = self._config.python_path
        return self._copied is not None and signature(folders) != self._copied

    def run(self, job: Job) -> SandboxResult:
        """Run an execution in the sandbox, and return its result."""
        limits = self._config.limits
        collected = 2 * limits.collect_bytes if job.collect else 0
        most = (limits.output_bytes, limits.output_bytes, _REPORT_BYTES + collected)
        streams: list[_Stream] = []
        with ExitStack() as opened:
            theirs = [_file_with(job.payload, opened)]
            for keep in most:
                reader, writer = os.pipe()
                opened.callback(os.close, reader)
                opened.callback(os.close, writer)
                os.set_blocking(reader, False)
                streams.append(_Stream(reader, keep))
                theirs.append(writer)
            line = json.dumps({"timeout_s": job.timeout_s, "collect": job.collect})
            try:
                socket.send_fds(self._control, [line.encode() + b"\n"], theirs)
            except OSError as error:
                raise GuestDiedError(self._last_words()) from error
            longest_s = ZygoteSettings.far_s(job.timeout_s) + _ANSWER_S
            deadline = time.monotonic() + longest_s
            self._wait_for("started", deadline)
            kills = self._group.killed if self._group else 0
            try:
                reply = self._wait_for("status", deadline, streams)
            except GuestDiedError as died:
                died.started = True
                if self._group is None or self._group.killed == kills:
                    raise
                reply = {"status": "killed", "signal": 9, "error": _OVER_MEMORY}
                self.spoiled = True
            self.spoiled |= reply.pop("spoiled", False)
            for stream in streams:
                while stream.open and stream.read():
                    pass
        out, err, report = streams
        if reply["status"] == "timed_out" and max(out.seen, err.seen) > _MOST_READ:
            reply["error"] = _OVER_OUTPUT
        result = SandboxResult(
            **reply,
            stdout=out.data.decode(errors="replace"),
            stderr=err.data.decode(errors="replace"),
            truncated=any(stream.seen > stream.keep for stream in (out, err)),
            rung=self._rung.name,
            warm=self._config.warm,
        )
        result = complete(result, job, bytes(report.data))
        self.spoiled |= result.status == "sandbox_error"
        return result

    def _wait_for(
        self, key: str, deadline: float, streams: Iterable[_Stream] = ()
    ) -> dict[str, Any]:
        sources = {stream.descriptor: stream for stream in streams}
        poll = select.poll()
        for descriptor in (self._control.fileno(), *sources):
            poll.register(descriptor, select.POLLIN)
        while b"\n" not in self._buffer:
            left = deadline - time.monotonic()
            if left <= 0:
                raise GuestDiedError("it stopped answering")
            for descriptor, _ in poll.poll(left * 1000 + 1):
                if stream := sources.get(descriptor):
                    stream.read()
                    if not stream.open:
                        poll.unregister(descriptor)
                elif data := self._receive():
                    self._buffer += data
                else:
                    raise GuestDiedError(self._last_words())
        first, _, self._buffer = self._buffer.partition(b"\n")
        line: dict[str, Any] = json.loads(first)
        if key not in line:
            raise GuestDiedError(f"it answered {line} out of turn")
        return line

    def _receive(self) -> bytes:
        with suppress(ConnectionError):
            return self._control.recv(65536)
        return b""

    def _last_words(self) -> str:
        """Describe the end of the zygote: its exit code and the last text on stderr."""
        with suppress(subprocess.TimeoutExpired):
            self.process.wait(timeout=2)
        self._log.seek(0)
        text = self._log.read()[-2000:].decode(errors="replace").strip()
        code = self.process.returncode
        return f"it ended (exit code {code}): {text or 'without a word'}"

    def interrupt(self) -> None:
        """End all processes; a call of :meth:`run` then raises GuestDiedError."""
        with suppress(OSError):
            self._control.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End all processes in the sandbox, and remove its folders."""
        self._owned.close()

    def _end(self) -> None:
        """Close the socket, so that the zygote ends; kill it if it does not end."""
        self._control.close()
        try:
            self.process.wait(1.0 if self._rung.bubblewrap else _GRACE_S)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def _file_with(content: bytes, opened: ExitStack) -> int:
    if sys.platform == "linux":
        descriptor = os.memfd_create("job")
    else:
        spare = opened.enter_context(tempfile.TemporaryFile())  # noqa: SIM115
        descriptor = os.dup(spare.fileno())
    opened.callback(os.close, descriptor)
    with open(descriptor, "wb", closefd=False) as file:
        file.write(content)
    return descriptor


def _remove(scratch: Path) -> None:
    """Remove the folder ``scratch`` with the files of a zygote; ignore errors."""
    with suppress(OSError):
        remove_tree(str(scratch))
