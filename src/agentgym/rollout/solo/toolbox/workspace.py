"""The files of one rollout, in memory, and the sandbox where commands run on them."""

import threading
from collections.abc import Mapping

from agentgym.errors import ToolError
from agentgym.sandbox import Argv, Sandbox, SandboxConfig, SandboxResult, open_sandbox
from agentgym.sandbox.workspace import Workspace

_MAX_PATH = 200
_MAX_FILES = 1_000


class SharedSandbox:
    """One sandbox for all rollouts of a batch, opened when first needed.

    Args:
        unsafe_local_exec: Whether commands may run with no isolation at all where
            nothing better works.
    """

    def __init__(self, *, unsafe_local_exec: bool = False) -> None:
        self._config = SandboxConfig(
            cache_entries=0, unsafe_local_exec=unsafe_local_exec
        )
        self._lock = threading.Lock()
        self._sandbox: Sandbox | None = None

    def open(self) -> Sandbox:
        """Return the sandbox, opened if it was not.

        Raises:
            SandboxUnavailableError: No rung works on this machine.
        """
        with self._lock:
            if self._sandbox is None:
                self._sandbox = open_sandbox(self._config)
            return self._sandbox

    def close(self) -> None:
        """Close it, once running commands have ended."""
        with self._lock:
            if self._sandbox is not None:
                self._sandbox.close()
                self._sandbox = None


class AttemptWorkspace(Workspace):
    """A folder of text files; every path stays inside, and commands see only it.

    Args:
        files: Relative path to text, as the task starts.
        sandbox: Where commands run.
        max_characters: Of one file.
    """

    def __init__(
        self,
        files: Mapping[str, str],
        sandbox: SharedSandbox,
        *,
        max_characters: int = 200_000,
    ) -> None:
        super().__init__(files, max_characters=max_characters)
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
        parents = [name[:i] for i, letter in enumerate(name) if letter == "/"]
        for parent in parents:
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
        result = await self._sandbox.open().run(
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
        gone: dict[str, str | None] = {
            name: None for name in self._start if name not in self.files
        }
        return gone | {
            name: text
            for name, text in sorted(self.files.items())
            if self._start.get(name) != text
        }
