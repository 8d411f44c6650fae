"""The file editor: view, create, replace and insert in the rollout's files."""

from typing import Literal

from pydantic import Field

from agentgym.core.tools import tool
from agentgym.errors import ToolError
from agentgym.rollout.solo.toolbox.base import BuiltInTool, cut


class FileEditor(BuiltInTool):
    """Edits text files; every path stays inside the workspace.

    Attributes:
        max_output: Most characters of a file that the agent sees at once.
    """

    max_output: int = Field(default=16_000, ge=100)

    @tool
    def file_editor(
        self,
        command: Literal["view", "create", "str_replace", "insert"],
        path: str,
        file_text: str = "",
        old_str: str = "",
        new_str: str = "",
        insert_line: int = 0,
        first_line: int = 1,
        last_line: int = -1,
    ) -> str:
        """View, create or edit a text file in the workspace.

        Args:
            command: view a file or folder; create a file with file_text; str_replace
                the one occurrence of old_str by new_str; or insert new_str.
            path: Relative to the workspace.
            file_text: The text of the file to create.
            old_str: The text to replace; it must occur exactly once.
            new_str: The new text.
            insert_line: The line after which new_str is put, 0 for the beginning.
            first_line: The first line to view.
            last_line: The last line to view, -1 for the end.
        """
        match command:
            case "view":
                return self._view(path, first_line, last_line)
            case "create":
                return f"Wrote {self._workspace.write(path, file_text)}."
            case "str_replace":
                name = self._workspace.file(path)
                self._workspace.replace(name, old_str, new_str)
                return f"Edited {name}."
            case "insert":
                return self._insert(path, insert_line, new_str)

    def _view(self, path: str, first: int, last: int) -> str:
        name = self._workspace.resolve(path)
        found = self._workspace.below(name)
        if name not in self._workspace.files and (found or name == "."):
            listing = "\n".join(found) or "(the workspace is empty)"
            return cut(listing, self.max_output)
        lines = self._workspace.files[self._workspace.file(path)].splitlines()
        end = len(lines) if last == -1 else min(last, len(lines))
        if first < 1 or (last != -1 and last < first):
            raise ToolError(f"lines {first} to {last} are no range.")
        if first > max(1, len(lines)):
            raise ToolError(f"{name} has {len(lines)} lines.")
        numbered = [f"{n:>5}  {lines[n - 1]}" for n in range(first, end + 1)]
        return cut("\n".join(numbered), self.max_output) or "(empty)"

    def _insert(self, path: str, after: int, text: str) -> str:
        name = self._workspace.file(path)
        lines = self._workspace.files[name].splitlines(keepends=True)
        if not 0 <= after <= len(lines):
            raise ToolError(f"{name} has {len(lines)} lines; {after} is none of them.")
        if after and not lines[after - 1].endswith("\n"):
            lines[after - 1] += "\n"
        lines.insert(after, text if text.endswith("\n") else text + "\n")
        self._workspace.write(name, "".join(lines))
        return f"Inserted after line {after} of {name}."
