"""Define the ready-made tools bash, file_editor and search."""

from collections.abc import Iterator
from typing import ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, PrivateAttr

from agentgym.core.tools import tool
from agentgym.errors import ToolError
from agentgym.sandbox.workspace import Workspace


class BuiltInTool(BaseModel):
    """Base class of ready-made tools.

    Its fields are settings, and one method, marked ``@tool``, is the tool.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    needs_sandbox: ClassVar[bool] = False  # whether the tool runs programs
    _workspace: Workspace = PrivateAttr()

    def on(self, workspace: Workspace) -> Self:
        """Return a copy of the tool that uses the files of a rollout's workspace."""
        bound = self.model_copy()
        bound._workspace = workspace
        return bound


class Bash(BuiltInTool):
    """Runs commands in the sandbox; later commands see changed text files."""

    needs_sandbox: ClassVar[bool] = True
    timeout_s: float = Field(default=10.0, gt=0, le=600)  # then a command is ended
    max_output: int = Field(default=10_000, ge=100)  # characters that the agent sees
    shell: str = "bash"  # the program that is called with ``-c COMMAND``

    @tool
    async def bash(self, command: str) -> str:
        """Run a bash command in the workspace folder, without network.

        Each command starts in the workspace folder with a fresh shell. Only text
        files in that folder are kept from one command to the next.

        Args:
            command: The command line.
        """
        if "\0" in command:
            raise ToolError("a command cannot hold a NUL character.")
        argv = (self.shell, "-c", command)
        result = (await self._workspace.run(argv, self.timeout_s)).checked()
        parts = [result.stdout.rstrip(), result.stderr.rstrip()]
        if result.timed_out:
            parts.append(f"(ended after {self.timeout_s:g} s; nothing was kept)")
        elif result.status == "killed":
            why = result.error or f"signal {result.signal}"
            parts.append(f"(killed: {why})")
        elif result.exit_code:
            parts.append(f"(exit code {result.exit_code})")
        text = "\n".join(part for part in parts if part)
        return _cut(text, self.max_output) or "(no output)"


class FileEditor(BuiltInTool):
    """Edits text files; every path stays inside the workspace."""

    max_output: int = Field(default=16_000, ge=100)  # characters seen at once

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
            return _cut(listing, self.max_output)
        lines = self._workspace.files[self._workspace.file(path)].splitlines()
        end = len(lines) if last == -1 else min(last, len(lines))
        if first < 1 or (last != -1 and last < first):
            raise ToolError(f"lines {first} to {last} are not a range.")
        if first > max(1, len(lines)):
            raise ToolError(f"{name} has {len(lines)} lines.")
        numbered = [f"{n:>5}  {lines[n - 1]}" for n in range(first, end + 1)]
        return _cut("\n".join(numbered), self.max_output) or "(empty)"

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


class Search(BuiltInTool):
    """Searches for a text, ignoring case."""

    texts: dict[str, str] = Field(default_factory=dict)
    """Texts to search in addition to the workspace's files, by name."""
    max_matches: int = Field(default=20, ge=1)  # lines shown
    max_line: int = Field(default=300, ge=20)  # characters shown of a line

    @tool
    def search(self, query: str, path: str = ".") -> str:
        """Search texts and files for a text, ignoring case.

        Args:
            query: The text to find.
            path: The file or folder to search; "." for everything.
        """
        wanted = query.strip().casefold()
        if not wanted:
            raise ToolError("the query is empty.")
        found = [
            f"{name}:{number}: {_cut(line.strip(), self.max_line)}"
            for name, text in self._sources(path)
            for number, line in enumerate(text.splitlines(), 1)
            if wanted in line.casefold()
        ]
        if not found:
            return f"No line holds {query!r}."
        shown = found[: self.max_matches]
        if len(found) > len(shown):
            shown.append(f"({len(found) - len(shown)} more)")
        return "\n".join(shown)

    def _sources(self, path: str) -> Iterator[tuple[str, str]]:
        folder = self._workspace.resolve(path)
        files = self._workspace.files
        if folder == ".":
            yield from self.texts.items()
        elif folder in self.texts:
            yield folder, self.texts[folder]
            return
        names = [folder] if folder in files else self._workspace.below(folder)
        if not names and folder != ".":
            raise ToolError(f"there is no file or folder {folder}.")
        for name in names:
            yield name, files[name]


def _cut(text: str, limit: int) -> str:
    """Return ``text`` with its middle left out if it exceeds ``limit`` characters."""
    if len(text) <= limit:
        return text
    half = limit // 2
    left_out = len(text) - 2 * half
    return f"{text[:half]}\n... ({left_out} characters left out) ...\n{text[-half:]}"
