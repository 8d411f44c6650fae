"""The files of one episode, in memory, with every path kept inside."""

import posixpath
from collections.abc import Mapping

from agentgym.errors import ToolError


class Workspace:
    """A folder of text files.

    Args:
        files: Relative path to text; copied.
        max_characters: Of a file that is written.
    """

    def __init__(
        self, files: Mapping[str, str], *, max_characters: int = 8_000
    ) -> None:
        self.files = dict(files)
        self._max_characters = max_characters

    def resolve(self, path: str) -> str:
        """Return ``path`` in its shortest form, ``"."`` for the root.

        Raises:
            ToolError: The path is absolute or leads out of the workspace.
        """
        plain = posixpath.normpath(path.strip() or ".")
        if plain.startswith(("/", "..")) or "\0" in plain:
            raise ToolError(f"{path!r} is outside the project; use a relative path.")
        return plain

    def file(self, path: str) -> str:
        """Return the resolved path of an existing file.

        Raises:
            ToolError: There is no such file; the message says what to do.
        """
        plain = self.resolve(path)
        if plain in self.files:
            return plain
        if self.below(plain):
            raise ToolError(f"{plain} is a folder; name a file.")
        instead = self.below(posixpath.dirname(plain) or ".") or self.below(".")
        raise ToolError(f"there is no file {plain}. Files: {' '.join(instead)}")

    def below(self, folder: str) -> list[str]:
        """Return the sorted paths of the files in a resolved folder."""
        if folder == ".":
            return sorted(self.files)
        return sorted(path for path in self.files if path.startswith(folder + "/"))

    def replace(self, path: str, old: str, new: str) -> None:
        """Replace the one occurrence of ``old`` in an existing file.

        Raises:
            ToolError: ``old`` is empty, absent or not unique, or the file would grow
                too large.
        """
        text = self.files[path]
        count = text.count(old) if old else 0
        if count == 0:
            raise ToolError(f"the old text is not in {path}; copy a line of it.")
        if count > 1:
            raise ToolError(f"the old text is {count} times in {path}; copy more.")
        changed = text.replace(old, new)
        self.check_length(path, changed)
        self.files[path] = changed

    def check_length(self, path: str, text: str) -> None:
        """Raise a ``ToolError`` if a text is too long for the file at ``path``."""
        if len(text) > self._max_characters:
            raise ToolError(
                f"{path} may hold at most {self._max_characters} characters."
            )
