"""Run code that a model wrote, isolated from the machine and from other executions."""

from agentgym.sandbox.commands import (
    Argv,
    Command,
    Program,
    PythonScript,
    RunTests,
    SandboxConfig,
)
from agentgym.sandbox.gives import Verdict, gives
from agentgym.sandbox.guest.settings import Limits
from agentgym.sandbox.result import SandboxResult, TestOutcome
from agentgym.sandbox.sandbox import LazySandbox, Sandbox, open_sandbox
from agentgym.sandbox.workspace import Workspace

__all__ = [
    "Argv",
    "Command",
    "LazySandbox",
    "Limits",
    "Program",
    "PythonScript",
    "RunTests",
    "Sandbox",
    "SandboxConfig",
    "SandboxResult",
    "TestOutcome",
    "Verdict",
    "Workspace",
    "gives",
    "open_sandbox",
]
