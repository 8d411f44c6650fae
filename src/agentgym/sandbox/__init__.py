"""Run code that a model wrote, isolated from the machine and other executions.

- ``sandbox``: :func:`open_sandbox` and :class:`Sandbox`, a pool of warm zygotes
  (long-lived interpreters that fork) with a cache of results.
- ``commands``, ``result``: the input and the parsed output of an execution.
- ``cache``: the cache of results.
- ``packages``: the interpreter and its importable packages.
- ``gives``: evaluates expressions in the sandbox, and checks the values outside it.
- ``languages``: JavaScript, Go and Rust, in addition to Python.
- ``on_demand``: a sandbox that opens at its first use.
- ``ladder``: finds the safest kind of isolation (rung) that works.
- ``guest_process``, ``launch``: start a zygote, and send it jobs.
- ``syscalls``, ``filter``: the allowed system calls, and their seccomp filter.
- ``memory``: limits the memory of a zygote with a control group, where possible.
- ``workspace``: the text files of one episode, for tools that read and edit them.
- ``guest``: the code that runs inside, and the settings it shares with the host.
"""

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
from agentgym.sandbox.on_demand import LazySandbox
from agentgym.sandbox.result import SandboxResult, TestOutcome
from agentgym.sandbox.sandbox import Sandbox, open_sandbox
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
