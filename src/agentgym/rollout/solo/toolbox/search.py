"""The search tool: lines that hold a text, in given texts and in the workspace."""

from collections.abc import Iterator

from pydantic import Field

from agentgym.core.tools import tool
from agentgym.errors import ToolError
from agentgym.rollout.solo.toolbox.base import BuiltInTool, cut


class Search(BuiltInTool):
    """Finds a text, ignoring case.

    Attributes:
        texts: Texts to search besides the workspace's files, by name.
        max_matches: Most lines shown.
        max_line: Most characters of a line shown.
    """

    texts: dict[str, str] = Field(default_factory=dict)
    max_matches: int = Field(default=20, ge=1)
    max_line: int = Field(default=300, ge=20)

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
            f"{name}:{number}: {cut(line.strip(), self.max_line)}"
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
