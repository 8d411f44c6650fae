"""Run code that a model wrote, isolated from the machine and from other executions.

Public names are imported at first use.
"""

from typing import TYPE_CHECKING

from agentgym.lazy import lazily

if TYPE_CHECKING:
    from agentgym.sandbox.commands import Argv as Argv
    from agentgym.sandbox.commands import Command as Command
    from agentgym.sandbox.commands import Program as Program
    from agentgym.sandbox.commands import PythonScript as PythonScript
    from agentgym.sandbox.commands import RunTests as RunTests
    from agentgym.sandbox.commands import SandboxConfig as SandboxConfig
    from agentgym.sandbox.commands import SandboxResult as SandboxResult
    from agentgym.sandbox.commands import TestOutcome as TestOutcome
    from agentgym.sandbox.guest.settings import Limits as Limits
    from agentgym.sandbox.sandbox import Sandbox as Sandbox
    from agentgym.sandbox.verdict import Verdict as Verdict
    from agentgym.sandbox.verdict import gives as gives
    from agentgym.sandbox.workspace import Workspace as Workspace
else:
    __getattr__, __dir__, __all__ = lazily(__spec__)
