"""Toolbox: create the tools of each rollout from names, settings and functions."""

import inspect
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from agentgym.core.background import call
from agentgym.core.settings import explain_invalid
from agentgym.core.tools import Tool, bound_tools, result_text, spec_of
from agentgym.errors import ConfigError, NotFoundError, ToolError, UsageError
from agentgym.integrations.registry import load_factory
from agentgym.rollout.solo.calculator import Calculator
from agentgym.rollout.solo.tools import Bash, BuiltInTool, FileEditor, Search
from agentgym.sandbox import Sandbox, SandboxConfig, open_sandbox
from agentgym.sandbox.workspace import Workspace
from agentgym.scenarios.base import Environment

_BUILT_IN: Mapping[str, type[BuiltInTool]] = {
    "bash": Bash,
    "calculator": Calculator,
    "file_editor": FileEditor,
    "search": Search,
}
_MAX_CHARACTERS = 200_000


class Workbench(Environment):
    """The environment of a rollout without a scenario: its tools and its files."""

    def __init__(self, workspace: Workspace, tools: list[Tool]) -> None:
        self.workspace = workspace
        self._tools = tools

    def tools(self) -> list[Tool]:
        """Return the tools of the rollout."""
        return self._tools

    def changed_files(self) -> dict[str, str | None]:
        """Return the texts of files that changed, by path; None for a deleted file."""
        return self.workspace.changed()


class Toolbox:
    """Creates the tools of each rollout. Call ``open`` before use, and ``close`` after.

    ``named`` has the settings of ready-made tools, by tool name. The name
    ``module:function`` stands for a user's function, which takes no settings. ``own``
    are users' functions, and objects with ``@tool`` methods.
    """

    def __init__(
        self,
        named: Mapping[str, Mapping[str, Any]],
        own: Sequence[Any] = (),
        *,
        unsafe_local_exec: bool = False,
    ) -> None:
        self._unsafe_local_exec = unsafe_local_exec
        self._sandbox: Sandbox | None = None
        self._built_in: list[BuiltInTool] = []
        self._own: list[Tool] = []
        for name, settings in named.items():
            if ":" not in name:
                self._built_in.append(_built_in(name, settings))
            elif settings:
                raise ConfigError(f"Tool {name!r} takes no settings.")
            else:
                self._own += _own_tools(load_factory(name, option="--tools"))
        for source in own:
            self._own += _own_tools(source)
        names = Counter(tool.spec.name for tool in self.bench({}).tools())
        if twice := sorted(name for name, count in names.items() if count > 1):
            raise UsageError(f"Two tools are named {twice[0]!r}; rename one.")

    def bench(self, files: Mapping[str, str]) -> Workbench:
        """Return a rollout's environment: its tools, and a workspace with ``files``."""
        workspace = Workspace(
            files, max_characters=_MAX_CHARACTERS, sandbox=self._sandbox
        )
        found = [t for kind in self._built_in for t in bound_tools(kind.on(workspace))]
        return Workbench(workspace, [*found, *self._own])

    def open(self) -> None:
        """Open the sandbox if a tool needs it; this takes a moment."""
        if any(tool.needs_sandbox for tool in self._built_in):
            unsafe = self._unsafe_local_exec
            config = SandboxConfig(
                cache_entries=0, unsafe_local_exec=unsafe, subprocesses=True
            )
            self._sandbox = open_sandbox(config)

    def close(self) -> None:
        """Wait for running commands, then close the sandbox."""
        if self._sandbox is not None:
            self._sandbox.close()


def _built_in(name: str, settings: Mapping[str, Any]) -> BuiltInTool:
    if name not in _BUILT_IN:
        hint = "Give a tool of your own as module:function."
        raise NotFoundError("tool", name, _BUILT_IN, hint)
    try:
        return _BUILT_IN[name](**settings)
    except ValidationError as error:
        problems = explain_invalid(error, sorted(_BUILT_IN[name].model_fields))
        raise ConfigError(f"Tool {name!r}: {problems}") from None


def _own_tools(source: Any) -> list[Tool]:
    """Return the tools of a function, a Tool, or an object with ``@tool`` methods."""
    if isinstance(source, Tool):
        return [source]
    if inspect.isfunction(source) or inspect.ismethod(source):
        return [Tool(spec_of(source), _shown(source))]
    if not isinstance(source, type) and (found := bound_tools(source)):
        return [Tool(one.spec, _shown(one.function)) for one in found]
    raise UsageError(
        f"{source!r} is not a tool; give a name, a function, or an object with methods "
        "marked with @tool."
    )


def _shown(function: Callable[..., Any]) -> Callable[..., Awaitable[str]]:
    """Wrap a function: return its result as text, raise its errors as ToolError."""

    async def shown(**arguments: Any) -> str:
        try:
            return result_text(await call(function, **arguments))
        except ToolError:
            raise
        except Exception as error:  # user code; the agent may try again
            raise ToolError(f"{type(error).__name__}: {error}") from error

    return shown
