"""What a ready-made tool is, and the files of one rollout that it works on."""

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import ClassVar, Self

from pydantic import BaseModel, ConfigDict, PrivateAttr

from agentgym.errors import SandboxError, ToolError
from agentgym.sandbox import Argv, Sandbox, SandboxResult
from agentgym.sandbox.workspace import Workspace

_MAX_PATH = 200
_MAX_FILES = 1_000
_MAX_CHARACTERS = 200_000


class AttemptWorkspace(Workspace):
    """A folder of text files; every path stays inside, and commands see only it.

    Args:
        files: Relative path to text, as the task starts.
        sandbox: Where commands run, if any may.
    """

    def __init__(self, files: Mapping[str, str], sandbox: Sandbox | None) -> None:
        super().__init__(files, max_characters=_MAX_CHARACTERS)
        self._start = dict(files)
        self._sandbox = sandbox

    def write(self, path: str, text: str) -> str:
        """Write a file, and return its resolved path.

        Raises:
            ToolError: The path leads outside or is taken by a folder, or the text
                is too long or no Unicode.
        """
        name = self.resolve(path)
        if name == "." or self.below(name):
            raise ToolError(f"{name} is a folder; name a file.")
        for parent in map(str, PurePosixPath(name).parents):
            if parent in self.files:
                raise ToolError(f"{parent} is a file, so {name} cannot be below it.")
        if len(name) > _MAX_PATH:
            raise ToolError(f"a path may have at most {_MAX_PATH} characters.")
        if name not in self.files and len(self.files) >= _MAX_FILES:
            raise ToolError(f"there may be at most {_MAX_FILES} files.")
        self.check_length(name, text)
        try:
            (name + text).encode()
        except UnicodeEncodeError as error:
            raise ToolError(f"the text is no Unicode: {error.reason}.") from None
        self.files[name] = text
        return name

    async def run(self, argv: tuple[str, ...], timeout_s: float) -> SandboxResult:
        """Run a command on the files, and keep the text files that it changed."""
        if self._sandbox is None:
            raise SandboxError("No command can run here: the toolbox is not open.")
        result = await self._sandbox.run(
            self.files, Argv(argv), timeout_s=timeout_s, collect=True
        )
        for name, text in (result.files or {}).items():
            if text is None:
                self.files.pop(name, None)
            else:
                self.files[name] = text
        return result

    def changed(self) -> dict[str, str | None]:
        """Return the files that differ from the start, None for one that is gone."""
        return {
            name: self.files.get(name)
            for name in sorted({*self._start, *self.files})
            if self.files.get(name) != self._start.get(name)
        }


class BuiltInTool(BaseModel):
    """A ready-made tool: its fields are its settings, one method is its ``@tool``.

    Attributes:
        needs_sandbox: Whether it runs code.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    needs_sandbox: ClassVar[bool] = False
    _workspace: AttemptWorkspace = PrivateAttr()

    def on(self, workspace: AttemptWorkspace) -> Self:
        """Return the tool with the same settings, at work on a rollout's files."""
        bound = self.model_copy()
        bound._workspace = workspace
        return bound


def cut(text: str, limit: int) -> str:
    """Return ``text``, its middle left out if it has more than ``limit`` characters."""
    if len(text) <= limit:
        return text
    half = limit // 2
    left_out = len(text) - 2 * half
    return f"{text[:half]}\n... ({left_out} characters left out) ...\n{text[-half:]}"
