"""The bash tool: a command line in the sandbox, on the rollout's files."""

from typing import ClassVar

from pydantic import Field

from agentgym.core.tools import tool
from agentgym.errors import SandboxError, ToolError
from agentgym.rollout.solo.toolbox.base import BuiltInTool, cut


class Bash(BuiltInTool):
    """Runs commands in the sandbox; text files that they change are kept.

    Attributes:
        timeout_s: Wall seconds after which a command is ended.
        max_output: Most characters of output that the agent sees.
        shell: The program that takes ``-c COMMAND``.
    """

    needs_sandbox: ClassVar[bool] = True
    timeout_s: float = Field(default=10.0, gt=0, le=600)
    max_output: int = Field(default=10_000, ge=100)
    shell: str = "bash"

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
        result = await self._workspace.run(argv, self.timeout_s)
        if result.status == "sandbox_error":
            raise SandboxError(f"The sandbox failed: {result.error}")
        parts = [result.stdout.rstrip(), result.stderr.rstrip()]
        if result.timed_out:
            parts.append(f"(ended after {self.timeout_s:g} s; nothing was kept)")
        elif result.status == "killed":
            why = result.error or f"signal {result.signal}"
            parts.append(f"(killed: {why})")
        elif result.exit_code:
            parts.append(f"(exit code {result.exit_code})")
        text = "\n".join(part for part in parts if part)
        return cut(text, self.max_output) or "(no output)"
