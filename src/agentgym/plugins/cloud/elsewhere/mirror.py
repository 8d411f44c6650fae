"""Mirror: copy a run's files between the client and a remote machine.

Checkpoints and the database on the client are always complete, since files are first
fetched into the folder ``.incoming``, and then renamed.
"""

import hashlib
import json
import os
import shutil
import tarfile
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from agentgym.core.files import is_below, new_folder, sync_folder
from agentgym.errors import ComputeError
from agentgym.plugins.cloud.elsewhere.channel import Channel
from agentgym.plugins.cloud.elsewhere.run_server import (
    BLOCK,
    copy_database,
    digests,
    version,
)
from agentgym.rollout.session import DATABASE_FILE
from agentgym.security.audit import FILE as AUDIT_FILE
from agentgym.security.private import private
from agentgym.security.redaction import quoted
from agentgym.train.run_folder import CREDIT_FILE, RunFolder

PART = 4 << 20
_INCOMING = ".incoming"
_FIRST = ("baseline", "warm_start", "warmed", "first_validation")
"""Keys that are added to ``state.json`` of step 0 one after the other.

The file is written again each time, so an older copy lacks some of them."""
_MOVED = (
    *("checkpoints", "metrics.jsonl", CREDIT_FILE, "tensorboard", "wandb"),
    "workers.log",
)


class Transfers:
    """Measures how long fetching a run's files takes."""

    def __init__(self) -> None:
        self._largest = self._size = 0
        self._seconds = 0.0
        self._slowest = 0.0

    def note(self, size: int, seconds: float) -> None:
        """Record a transfer of ``size`` bytes that took ``seconds``."""
        if size <= 0:
            return
        self._size, self._seconds = self._size + size, self._seconds + seconds
        self._largest = max(self._largest, size)
        # A small transfer is mostly latency, and shows little of the speed.
        last = seconds / size if size > self._largest / 10 else 0.0
        self._slowest = max(last, self._seconds / self._size)

    @property
    def longest_s(self) -> float | None:
        """Expected seconds to repeat the largest transfer; None before the first one.

        The assumed speed is the mean speed so far, or the last transfer's speed if that
        is lower. A small last transfer is ignored.
        """
        return self._largest * self._slowest if self._largest else None


class Mirror:
    """Copies one run's files between the client and a remote machine."""

    def __init__(
        self, channel: Channel, run: RunFolder, beat: Callable[[], None]
    ) -> None:
        self._channel = channel
        self._run = run
        self._name = run.path.name
        self._beat = beat
        self._blocks: list[str] | None = None
        self._seen: set[str] = set()
        self._fetched = 0
        self.transfers = Transfers()

    def continues_local(self) -> bool:
        """Return whether the remote run continues the newest local checkpoint.

        It does if this checkpoint's ``state.json``, and all metrics up to its step, are
        the same on both machines. If it does not, the run has continued locally or on a
        third machine, and the remote files must not be fetched.
        """
        found = self._run.checkpoints()
        if not found:
            return True
        newest, folder = found[-1], f"runs/{self._name}"
        step = int(newest.name.removeprefix("step-"))
        lines = [json.dumps(e) for e in self._run.metrics() if e["step"] <= step]
        message = "".join(f"{line}\n" for line in lines).encode()
        if self._whole(f"{folder}/metrics.jsonl", len(message)) != message:
            return False
        state = (newest / "state.json").read_bytes()
        there = self._whole(f"{folder}/checkpoints/{newest.name}/state.json")
        if there in (b"", state):  # b"": newer checkpoints may have replaced it
            return True
        mine, theirs = json.loads(state), json.loads(there)
        return step == 0 and all(mine[k] in (None, {}, theirs[k]) for k in _FIRST)

    def _whole(self, path: str, most: int = 1 << 30) -> bytes:
        """Return up to ``most`` bytes of a remote file; ``b""`` if it is missing."""
        found = b""
        while part := self._part(path, len(found), most - len(found)):
            found += part
        return found

    def pull(self) -> dict[str, Any]:
        """Fetch the run's new files; return the result of ``RunServer.files``.

        The database is fetched before the checkpoints, since each checkpoint records
        how many rollouts the database has. Call this method only if
        :meth:`continues_local` returns True; otherwise newer local files may be lost.
        """
        begun, before = time.monotonic(), self._fetched
        home = {path.name: version(path) for path in self._run.checkpoints()}
        files: dict[str, Any]
        files, _ = self._channel.ask("files", run=self._name, have=home)
        self._pull_store()
        for name, size in files["others"].items():
            self._pull_lines(name, size)
        for stage in sorted(files["checkpoints"], reverse=True):
            self._pull_checkpoint(stage, files["checkpoints"][stage])
        for name in home.keys() - set(files["all"]) if files["all"] else ():
            shutil.rmtree(self._run.path / "checkpoints" / name, ignore_errors=True)
        self.transfers.note(self._fetched - before, time.monotonic() - begun)
        return files

    def pull_agent(self, sizes: dict[str, int]) -> None:
        """Fetch the trained agent; ``sizes`` are its files' sizes in bytes, by name."""
        with new_folder(self._run.path / "agent") as folder:
            for name, size in sizes.items():
                source = f"runs/{self._name}/agent/{name}"
                self._fetch(source, size, folder / _checked(name))

    def push(self, config: dict[str, Any]) -> None:
        """Copy the local run to the machine."""
        path = self._run.path
        with tempfile.TemporaryFile() as file, tempfile.TemporaryDirectory() as scratch:
            record = Path(scratch) / "run.json"
            record.write_text(json.dumps({**self._run.record(), "config": config}))
            with tarfile.open(fileobj=file, mode="w") as tar:
                tar.add(record, "run.json")
                logs = [log.name for log in path.glob(f"{AUDIT_FILE}*")]
                for name in (*_MOVED, *logs):
                    if (path / name).exists():
                        tar.add(path / name, name)
                if (path / DATABASE_FILE).exists():
                    copy = Path(scratch) / DATABASE_FILE
                    copy_database(path / DATABASE_FILE, copy)
                    tar.add(copy, DATABASE_FILE)
            self.send(file, f"runs/{self._name}")

    def send(self, file: IO[bytes], to: str) -> None:
        """Send a tar archive; replace the remote folder ``to`` by its content.

        If the connection breaks, another call continues the transfer where it stopped.
        """
        file.seek(0)
        digest = hashlib.sha256()
        while part := file.read(PART):
            digest.update(part)
        name = f"{digest.hexdigest()[:16]}.tar"
        offset, _ = self._channel.ask("have", name=name)
        file.seek(offset)
        while part := file.read(PART):
            offset, _ = self._channel.ask("put", part, name=name, offset=offset)
            self._beat()
        self._channel.ask("unpack", name=name, to=to, patience_s=600.0)

    def _pull_store(self) -> None:
        """Fetch the blocks of the database that differ from the local ones."""
        found, _ = self._channel.ask("snapshot", run=self._name, patience_s=600.0)
        if not found["size"]:
            return
        path = self._run.path / DATABASE_FILE
        if self._blocks is None:
            self._blocks = digests(path) if path.exists() else []
        old = self._blocks
        new = self._incoming(DATABASE_FILE)
        if path.exists():
            shutil.copyfile(path, new)
        with open(new, "r+b" if new.exists() else "w+b", opener=private) as file:
            for index, digest in enumerate(found["blocks"]):
                if index >= len(old) or old[index] != digest:
                    file.seek(index * BLOCK)
                    file.write(self._part("outbox/rollouts.db", index * BLOCK, BLOCK))
            file.truncate(found["size"])
            file.flush()
            os.fsync(file.fileno())
        for log in ("-wal", "-shm"):  # left by an earlier local training
            path.with_name(f"{DATABASE_FILE}{log}").unlink(missing_ok=True)
        new.replace(path)
        self._blocks = found["blocks"]

    def _pull_lines(self, name: str, size: int) -> None:
        """Append a remote file's new lines; the first call fetches the whole file."""
        path = self._run.path / _checked(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        is_known = name in self._seen and path.exists()
        offset = path.stat().st_size if is_known else 0
        if offset > size:
            offset = 0
        if offset == size and is_known:
            return
        if offset:
            target, mode = path, "ab"
        else:
            target, mode = self._incoming(name.replace("/", "_")), "wb"
        with open(target, mode, opener=private) as file:
            while offset < size:
                part = self._part(f"runs/{self._name}/{name}", offset, size - offset)
                if not part:  # the file was replaced: fetch all of it next time
                    self._seen.discard(name)
                    return
                file.write(part)
                offset += len(part)
        if target != path:
            target.replace(path)
        self._seen.add(name)

    def _pull_checkpoint(self, stage: str, sizes: dict[str, int]) -> None:
        """Fetch a checkpoint; replace the local checkpoint of the same name."""
        incoming = self._incoming(_checked(stage))
        for file, size in sizes.items():
            self._fetch(f"outbox/{stage}/{file}", size, incoming / _checked(file))
        folder = self._run.path / "checkpoints"
        target = folder / _checked(stage.rpartition("-")[0])
        if target.exists():
            shutil.rmtree(target)
        incoming.rename(target)
        sync_folder(folder)

    def _fetch(self, source: str, size: int, target: Path) -> None:
        """Fetch a file of ``size`` bytes; continue a partly fetched ``target``."""
        target.parent.mkdir(parents=True, exist_ok=True)
        with open(target, "ab", opener=private) as file:
            while (offset := file.tell()) < size:
                if not (part := self._part(source, offset, size - offset)):
                    raise ComputeError(f"{source} of the run became shorter there.")
                file.write(part)
            file.flush()
            os.fsync(file.fileno())

    def _part(self, path: str, offset: int, length: int) -> bytes:
        _, part = self._channel.ask(
            "get", path=path, offset=offset, length=min(length, PART)
        )
        self._fetched += len(part)
        self._beat()
        return part

    def _incoming(self, name: str) -> Path:
        folder = self._run.path / _INCOMING
        folder.mkdir(exist_ok=True)
        return folder / name

    def forget_parts(self) -> None:
        """Remove partly fetched files; call this before fetching from a new machine."""
        shutil.rmtree(self._run.path / _INCOMING, ignore_errors=True)


def _checked(name: str) -> str:
    """Return a remote file's relative path, after checking it."""
    if not is_below(name):
        raise ComputeError(
            f"The machine offers a file named {quoted(name)}, which would be written "
            "outside of the run's folder. Do not use that machine."
        )
    return name
