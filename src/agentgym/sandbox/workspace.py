"""Workspace: the text files of one episode, in memory."""

import posixpath
from collections.abc import Mapping
from dataclasses import replace
from pathlib import PurePosixPath

from agentgym.errors import SandboxError, ToolError
from agentgym.sandbox.commands import Argv, SandboxResult
from agentgym.sandbox.sandbox import Sandbox

_MAX_PATH = 200
_MAX_PART = 255
_MAX_BYTES = 48 << 20  # of all files; a sandbox has room for 64 MB
_ENTRY_BYTES = 8192  # a file or folder counts as much: a sandbox can have 8192 of them


class Workspace:
    """A folder of text files in memory, to read, to edit and to run commands on.

    Paths outside of the folder are refused, and commands see only these files.

    Args:
        files: The texts of the initial files, by relative path. The mapping is copied.
        max_characters: Maximum number of characters of a written file.
        sandbox: The sandbox that runs commands; None if commands are not allowed.
    """

    def __init__(
        self,
        files: Mapping[str, str],
        *,
        max_characters: int = 8_000,
        sandbox: Sandbox | None = None,
    ) -> None:
        self.files = dict(files)
        self._start = dict(files)
        self._max_characters = max_characters
        self._sandbox = sandbox

    def resolve(self, path: str) -> str:
        """Return a path in its shortest form, e.g. ``a/b`` for ``a/./b``.

        The path of the workspace itself is ``"."``.

        Raises:
            ToolError: The path is absolute or outside of the workspace.
        """
        plain = posixpath.normpath(path.strip() or ".")
        if plain.startswith(("/", "..")) or "\0" in plain:
            raise ToolError(f"{path!r} is outside the project; use a relative path.")
        return plain

    def file(self, path: str) -> str:
        """Return the path of an existing file, in its shortest form.

        Raises:
            ToolError: The file does not exist; the message lists existing files.
        """
        plain = self.resolve(path)
        if plain in self.files:
            return plain
        if self.below(plain):
            raise ToolError(f"{plain} is a folder; name a file.")
        instead = self.below(posixpath.dirname(plain) or ".") or self.below(".")
        raise ToolError(f"there is no file {plain}. Files: {' '.join(instead)}")

    def below(self, folder: str) -> list[str]:
        """Return the sorted paths of all files below a folder.

        ``folder`` must be in its shortest form; see :meth:`resolve`.
        """
        if folder == ".":
            return sorted(self.files)
        return sorted(path for path in self.files if path.startswith(folder + "/"))

    def replace(self, path: str, old: str, new: str) -> None:
        """Replace the only occurrence of ``old`` in an existing file by ``new``.

        Raises:
            ToolError: ``old`` is empty, is not in the file or occurs several times, or
                the file would be too large or not Unicode.
        """
        text = self.files[path]
        count = text.count(old) if old else 0
        if count == 0:
            raise ToolError(f"the old text is not in {path}; copy a line of it.")
        if count > 1:
            raise ToolError(f"the old text is {count} times in {path}; copy more.")
        changed = text.replace(old, new)
        self._check_text(path, changed)
        self.files[path] = changed

    def write(self, path: str, text: str) -> str:
        """Write a file, and return its path in the shortest form.

        Raises:
            ToolError: The path or the text is not allowed; the message says why.
        """
        name = self.resolve(path)
        if name == "." or self.below(name):
            raise ToolError(f"{name} is a folder; name a file.")
        for parent in map(str, PurePosixPath(name).parents):
            if parent in self.files:
                raise ToolError(f"{parent} is a file, so {name} cannot be below it.")
        if len(name) > _MAX_PATH:
            raise ToolError(f"a path may have at most {_MAX_PATH} characters.")
        self._check_text(name, text)
        if max(len(part) for part in name.encode().split(b"/")) > _MAX_PART:
            raise ToolError(f"a name may have at most {_MAX_PART} bytes.")
        self.files[name] = text
        return name

    async def run(self, argv: tuple[str, ...], timeout_s: float) -> SandboxResult:
        """Run a command on the files, and store the text files that it changed.

        If the workspace is full, changed files are lost, and the result's stderr
        mentions this.

        Raises:
            SandboxError: Commands are not allowed, or the sandbox could not be started.
        """
        if self._sandbox is None:
            raise SandboxError("No command can run here: the toolbox is not open.")
        result = await self._sandbox.run(
            self.files, Argv(argv), timeout_s=timeout_s, collect=True
        )
        lost = 0
        for name, text in (result.files or {}).items():
            if text is None:
                self.files.pop(name, None)
            else:
                lost += not self._keep(name, text)
        if not lost:
            return result
        most = f"({lost} changed files were not kept: the workspace is full)\n"
        return replace(result, stderr=result.stderr + most)

    def _keep(self, name: str, text: str) -> bool:
        """Store a file that a command wrote; return False if the workspace is full.

        Files that cannot exist together with it are removed.
        """
        for other in (*map(str, PurePosixPath(name).parents), *self.below(name)):
            self.files.pop(other, None)
        if not self._has_room_for(name, text):
            return False
        self.files[name] = text
        return True

    def _has_room_for(self, name: str, text: str) -> bool:
        """Return whether all files fit into a sandbox with this text in ``name``."""
        before = _size(name, self.files[name]) if name in self.files else 0
        more = _size(name, text) - before
        held = sum(_size(path, text) for path, text in self.files.items())
        return more <= 0 or held + more <= _MAX_BYTES

    def changed(self) -> dict[str, str | None]:
        """Return the files that differ from the initial files: the text by path.

        The text is None for a removed file.
        """
        return {
            name: self.files.get(name)
            for name in sorted({*self._start, *self.files})
            if self.files.get(name) != self._start.get(name)
        }

    def _check_text(self, path: str, text: str) -> None:
        """Check that the file at ``path`` can have this text."""
        try:
            (path + text).encode()
        except UnicodeEncodeError as error:
            raise ToolError(f"the text is not Unicode: {error.reason}.") from None
        if len(text) > self._max_characters:
            raise ToolError(
                f"{path} may hold at most {self._max_characters} characters."
            )
        if not self._has_room_for(path, text):
            raise ToolError("the files are too many or too large; remove some.")


def _size(path: str, text: str) -> int:
    """Return the disk space that a file and its folders may take, in bytes."""
    entries = 1 + path.count("/")
    return _ENTRY_BYTES * entries + len(text) * (1 if text.isascii() else 4)
