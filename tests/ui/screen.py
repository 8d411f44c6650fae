"""A terminal to look at: what a program leaves on it, and above it."""

import codecs
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from contextlib import suppress

_CONTROL = re.compile(r"\x1b\[([?\d;]*)([A-Za-z])|\x1b\]8;[^\x1b]*\x1b\\")


class Screen:
    """As much of a terminal as the live view needs; unknown sequences are an error."""

    def __init__(self, columns: int, rows: int) -> None:
        self.columns, self.rows = columns, rows
        self.lines = [""]
        self.row = self.column = 0
        self.wraps = 0
        self.cursor_hidden = False

    def feed(self, text: str) -> None:
        at = 0
        while at < len(text):
            if found := _CONTROL.match(text, at):
                self._control(found[1], found[2])
                at = found.end()
            else:
                self._put(text[at])
                at += 1

    def _control(self, numbers: str, kind: str | None) -> None:
        if kind in ("m", None):
            return
        if kind == "A":
            top = max(0, len(self.lines) - self.rows)
            self.row = max(top, self.row - int(numbers or 1))
        elif kind == "K":
            assert numbers == "2"
            self.lines[self.row] = ""
        elif kind in "hl":
            assert numbers == "?25"
            self.cursor_hidden = kind == "l"
        else:
            raise AssertionError(f"unknown control sequence {numbers!r} {kind!r}")

    def _put(self, character: str) -> None:
        if character == "\r":
            self.column = 0
        elif character == "\n":
            self.row += 1
            if self.row == len(self.lines):
                self.lines.append("")
        else:
            if self.column == self.columns:
                self.wraps += 1
                self._put("\r")
                self._put("\n")
            line = self.lines[self.row].ljust(self.column)
            rest = line[self.column + 1 :]
            self.lines[self.row] = line[: self.column] + character + rest
            self.column += 1

    @property
    def text(self) -> str:
        """Everything that can be seen or scrolled back to."""
        return "\n".join(line.rstrip() for line in self.lines)


class Terminal:
    """Runs a program in a terminal of its own.

    ``on_text`` is called with all that was written so far, and may type or resize.
    """

    def __init__(self, columns: int, rows: int) -> None:
        self.screen = Screen(columns, rows)
        self._ours, self._theirs = pty.openpty()
        modes = termios.tcgetattr(self._theirs)
        modes[3] |= termios.NOFLSH  # else Ctrl-C discards what was not read yet
        termios.tcsetattr(self._theirs, termios.TCSANOW, modes)
        self.resize(columns, rows)

    def resize(self, columns: int, rows: int) -> None:
        self.screen.columns, self.screen.rows = columns, rows
        size = struct.pack("HHHH", rows, columns, 0, 0)
        fcntl.ioctl(self._ours, termios.TIOCSWINSZ, size)

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def run(
        self,
        *arguments: str,
        on_text: Callable[["Terminal", str], None] = lambda *_: None,
        **environment: str,
    ) -> int:
        """Run Python with ``arguments``; return its exit code."""
        dull = ("COLUMNS", "LINES", "NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE")
        inherited = {k: v for k, v in os.environ.items() if k not in dull}
        process = subprocess.Popen(
            [sys.executable, *arguments],
            stdin=self._theirs,
            stdout=self._theirs,
            stderr=self._theirs,
            env={**inherited, "TERM": "xterm-256color", **environment},
            start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
        )
        os.close(self._theirs)
        decode = codecs.getincrementaldecoder("utf-8")("replace").decode
        said = held = ""
        try:
            while data := _read(self._ours):
                held += decode(data)
                last = held.rfind("\x1b")
                is_whole = last < 0 or _CONTROL.match(held, last)
                cut = len(held) if is_whole else last
                self.screen.feed(held[:cut])
                said, held = said + held[:cut], held[cut:]
                on_text(self, said)
        finally:
            os.close(self._ours)
        return process.wait()


def _read(descriptor: int) -> bytes:
    """Return all that is written by now, so that a resize comes after it."""
    data = b""
    with suppress(OSError):  # Linux's way to say that the other end is closed
        data = os.read(descriptor, 65536)
        while select.select([descriptor], [], [], 0)[0]:
            data += os.read(descriptor, 65536)
    return data
