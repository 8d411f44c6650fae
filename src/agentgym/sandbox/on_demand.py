"""LazySandbox: a sandbox that opens when it is first used."""

import threading
from collections.abc import Callable, Mapping

from agentgym.sandbox.commands import Command, SandboxConfig
from agentgym.sandbox.result import SandboxResult
from agentgym.sandbox.sandbox import DEFAULT_TIMEOUT_S, Sandbox, open_sandbox


class LazySandbox:
    """A sandbox that opens at its first use, and again at the first use after a close.

    Args:
        config: Function that returns the settings; called each time the sandbox opens.
            If it is None, the sandbox has the default settings.
    """

    def __init__(self, config: Callable[[], SandboxConfig] | None = None) -> None:
        self._config = config or SandboxConfig
        self._opened: Sandbox | None = None
        self._lock = threading.Lock()

    def get(self) -> Sandbox:
        """Open the sandbox if needed, and return it.

        Raises:
            SandboxUnavailableError: No isolation works on this machine.
        """
        with self._lock:
            if self._opened is None:
                self._opened = open_sandbox(self._config())
            return self._opened

    async def run(
        self,
        files: Mapping[str, str],
        command: Command,
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        collect: bool = False,
    ) -> SandboxResult:
        """Run a command in a new workspace; see :meth:`Sandbox.run`."""
        return await self.get().run(
            files, command, timeout_s=timeout_s, collect=collect
        )

    def run_sync(
        self,
        files: Mapping[str, str],
        command: Command,
        *,
        timeout_s: float = DEFAULT_TIMEOUT_S,
        collect: bool = False,
    ) -> SandboxResult:
        """Run a command in a new workspace and wait; see :meth:`Sandbox.run`."""
        return self.get().run_sync(files, command, timeout_s=timeout_s, collect=collect)

    def close(self) -> None:
        """Close the sandbox, if it was opened."""
        with self._lock:
            opened, self._opened = self._opened, None
        if opened is not None:
            opened.close()
