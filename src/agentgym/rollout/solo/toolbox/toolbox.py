"""Toolbox: from names, settings and functions to the tools of each rollout."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from agentgym.core.settings import explain_invalid
from agentgym.core.tools import Tool, bound_tools
from agentgym.errors import ConfigError, NotFoundError
from agentgym.integrations.registry import load_factory
from agentgym.rollout.solo.toolbox.base import BuiltInTool, ToolSettings
from agentgym.rollout.solo.toolbox.bash import Bash
from agentgym.rollout.solo.toolbox.calculator import Calculator
from agentgym.rollout.solo.toolbox.file_editor import FileEditor
from agentgym.rollout.solo.toolbox.functions import own_tools, unique
from agentgym.rollout.solo.toolbox.search import Search
from agentgym.rollout.solo.toolbox.workspace import AttemptWorkspace, SharedSandbox
from agentgym.scenarios.base import Environment

_BUILT_IN: Mapping[str, type[BuiltInTool[Any]]] = {
    kind.name: kind for kind in (Calculator, Bash, FileEditor, Search)
}


def tool_names() -> list[str]:
    """Return the names of the ready-made tools."""
    return sorted(_BUILT_IN)


class Toolbox:
    """Makes the tools of each rollout. Open it as a context manager.

    Args:
        named: Settings of ready-made tools by name; ``module:function`` names one's
            own, which takes none.
        own: One's own functions and objects.
        unsafe_local_exec: Whether commands may run without a sandbox.

    Raises:
        NotFoundError: A name is unknown.
        ConfigError: A setting is unknown or ill-typed.
        ScenarioError: A function has no types or no docstring.
        UsageError: Something is no tool, or two have one name.
    """

    def __init__(
        self,
        named: Mapping[str, Mapping[str, Any]],
        own: Sequence[Any] = (),
        *,
        unsafe_local_exec: bool = False,
    ) -> None:
        self._sandbox = SharedSandbox(unsafe_local_exec=unsafe_local_exec)
        self._built_in: list[tuple[type[BuiltInTool[Any]], ToolSettings]] = []
        self._own: list[Tool] = []
        for name, settings in named.items():
            if ":" in name:
                if settings:
                    raise ConfigError(f"Tool {name!r} takes no settings.")
                self._own += own_tools(load_factory(name, option="--tools"))
            elif name in _BUILT_IN:
                kind = _BUILT_IN[name]
                self._built_in.append((kind, _read(kind, settings)))
            else:
                hint = "One of your own is given as module:function."
                raise NotFoundError("tool", name, _BUILT_IN, hint)
        for source in own:
            self._own += own_tools(source)
        unique(self.bench({}).tools())

    def bench(self, files: Mapping[str, str]) -> "Workbench":
        """Return the tools of one rollout, on a workspace with these files."""
        workspace = AttemptWorkspace(files, self._sandbox)
        found = [
            one
            for kind, settings in self._built_in
            for one in bound_tools(kind(settings, workspace))
        ]
        return Workbench(workspace, [*found, *self._own])

    def open(self) -> None:
        """Open the sandbox if a tool needs it; this takes a moment.

        Raises:
            SandboxUnavailableError: No rung works on this machine.
        """
        if any(kind.needs_sandbox for kind, _ in self._built_in):
            self._sandbox.open()

    def close(self) -> None:
        """Close the sandbox."""
        self._sandbox.close()


class Workbench(Environment):
    """The environment of a rollout without a scenario: tools, and a workspace."""

    def __init__(self, workspace: AttemptWorkspace, tools: list[Tool]) -> None:
        self.workspace = workspace
        self._tools = tools

    def tools(self) -> list[Tool]:
        """Return the tools."""
        return self._tools

    def changed_files(self) -> dict[str, str | None]:
        """Return the files that differ from the start, None for one that is gone."""
        return self.workspace.changed()


def _read(kind: type[BuiltInTool[Any]], settings: Mapping[str, Any]) -> ToolSettings:
    try:
        return kind.settings_type(**settings)
    except ValidationError as error:
        known = sorted(kind.settings_type.model_fields)
        reason = explain_invalid(error, known).removeprefix("Invalid configuration: ")
        raise ConfigError(f"Tool {kind.name!r}: {reason}") from None
