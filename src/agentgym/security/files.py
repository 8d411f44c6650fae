"""Create files that only this user can read; write output to them without secrets."""

import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Self

from agentgym.security.redaction import Redactor


def private(path: str | Path, flags: int) -> int:
    """Open a file; if it is new, only this user can read it.

    An ``opener`` for :func:`open`.
    """
    return os.open(path, flags, 0o600)


def make_private_folder(path: Path) -> None:
    """Make a folder that only this user can enter; do nothing if it exists."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with suppress(FileExistsError):
        path.mkdir(mode=0o700)
    if not path.is_dir():
        raise NotADirectoryError(20, "a file of this name exists", str(path))


def make_private_file(path: Path) -> None:
    """Create an empty file that only this user can read; do nothing if it exists."""
    # For SQLite: closing an existing file would release SQLite's locks in this process.
    with suppress(FileExistsError):
        os.close(private(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC))


_PART = 1 << 16
# Maximum length of a line, in bytes; a longer line is written in pieces.
_LONGEST = 1 << 20
_END_S = 2.0


class LogFile:
    """A file for the standard error of other processes, from which secrets are removed.

    A thread of this process appends the output. Its end loses further output.
    """

    def __init__(self, path: Path, secrets: Mapping[str, str] | None = None) -> None:
        self._file = open(path, "ab", 0, opener=private)  # noqa: SIM115
        self._redactor = Redactor.of_environment(secrets)
        self._reader, self._writer = os.pipe()
        self._thread = threading.Thread(
            target=self._copy, name="agentgym-log", daemon=True
        )
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def fileno(self) -> int:
        """Return the file descriptor that other processes write to."""
        return self._writer

    def close(self) -> None:
        """Close the file in this process; other processes can still write."""
        if self._writer >= 0:
            os.close(self._writer)
            self._writer = -1

    def wait(self, most_s: float = _END_S) -> None:
        """Wait at most ``most_s`` seconds until all processes have closed the file."""
        self._thread.join(most_s)

    def _copy(self) -> None:
        rest = b""
        with self._file, suppress(OSError):  # the disk is full: the output is lost
            while part := os.read(self._reader, _PART):
                whole, end, rest = (rest + part).rpartition(b"\n")
                self._write(whole + end)
                if len(rest) > _LONGEST:
                    self._write(rest)
                    rest = b""
            self._write(rest)
        while os.read(self._reader, _PART):  # otherwise writers block on a full pipe
            pass
        os.close(self._reader)

    def _write(self, lines: bytes) -> None:
        text = lines.decode("utf-8", "surrogateescape")
        clean = self._redactor.text(text).encode("utf-8", "surrogateescape")
        while clean:
            clean = clean[self._file.write(clean) :]
