"""Import a user's tools and check function."""

import inspect
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, is_typeddict

from pydantic import BaseModel, TypeAdapter

from agentgym.core.registry import load_object
from agentgym.core.task import Task
from agentgym.core.tools import Tool, ToolSpec, as_tools, pending_run
from agentgym.core.trajectory import ToolCall
from agentgym.errors import AgentGymError, ScenarioError, ToolError, UsageError
from agentgym.scenarios.schemas import spec_of_openai
from agentgym.scenarios.tool_tasks.reward import Check

TOOLS_FROM = "--tools-from"
CHECK = "--check"
NO_CHECK = "none"
"""Value of ``check`` for no check: a judge model ranks the attempts."""


def load_tools(reference: str, folder: str = "") -> list[Tool]:
    """Import the tools at ``module:name``; [] for an agent, ``@module:name``.

    An agent's own tools are those that its model is offered, as it runs.
    A tool is a function or a framework's tool, a schema as OpenAI's, Anthropic's or
    MCP's clients take it, or a class of its arguments.
    """
    if is_agent(reference):
        return []
    # Imported by name: adapters, which know frameworks' tools, are in a higher layer.
    named = resolve_name("agentgym.integrations.agent_import:named_tools")
    found = named(reference, TOOLS_FROM, folder)
    if isinstance(found, Mapping) and _schema_in(found) is None:
        found = list(found.values())
    if isinstance(found, list | tuple):
        declared = [_declared(each, reference) for each in found]
        return as_tools(type(found)(declared), reference)
    return as_tools(_declared(found, reference), reference)


def _schema_in(tool: Mapping[str, Any]) -> Any:
    """Return the part of a client's form of a tool with its schema; None without."""
    forms = "parameters", "input_schema", "inputSchema", "function"
    return next((tool[name] for name in forms if name in tool), None)


def _declared(value: Any, what: str) -> Any:
    """Return the tool that a schema or a class declares; other values unchanged."""
    if isinstance(value, Mapping):
        function = value.get("function", value)
        schema = _schema_in(function) if isinstance(function, Mapping) else None
        found = {**function, "parameters": schema} if schema is not None else function
    elif is_typeddict(value) or (
        isinstance(value, type) and issubclass(value, BaseModel)
    ):
        schema = TypeAdapter(value).json_schema()
        doc = inspect.cleandoc(value.__doc__ or "")
        found = {"name": value.__name__, "description": doc, "parameters": schema}
    else:
        return value
    try:
        return unseen_tool(spec_of_openai(found))
    except ValueError as error:
        raise ScenarioError(
            f"{what} holds a tool that cannot be read: {error}."
        ) from None


def is_agent(reference: str) -> bool:
    """Return whether a reference to tools is ``@module:name``, an agent."""
    return reference.startswith("@")


def unseen_tool(spec: ToolSpec) -> Tool:
    """Return the tool of an agent that only its requests show."""

    async def run(**arguments: Any) -> Any:
        if (here := pending_run(spec.name)) is None:
            raise ToolError(f"{spec.name} can only run where the agent calls it")
        return await here(arguments)

    return Tool(spec, run, as_written=True)


def load_all_tools(references: Sequence[str], folder: str) -> list[Tool]:
    """Import the tools of several references, as :func:`load_tools` does."""
    tools = [tool for each in references for tool in load_tools(each, folder)]
    if not tools and all(map(is_agent, references)):
        return []
    return as_tools(tools, " and ".join(references))


def accept_all(task: Task, calls: Sequence[ToolCall], state: Mapping[str, Any]) -> bool:
    """Return True for every attempt: the check function of ``--check none``."""
    return True


def load_check(reference: str, folder: str) -> Check:
    """Import the check function at ``module:name``, or ``none`` for no check."""
    if reference == NO_CHECK:
        return accept_all
    try:
        found = load_object(reference, option=CHECK, folder=folder)
    except AgentGymError:
        raise
    except Exception as error:
        raise UsageError(
            f"{CHECK} {reference} cannot be imported: {type(error).__name__}: {error}"
        ) from error
    if not callable(found):
        raise UsageError(
            f"{CHECK} {reference} is {found!r}, not a function "
            "check(task, calls, state)."
        )
    return usable_check(found, f"{CHECK} {reference}")


def usable_check(check: Any, named: str = "check") -> Check:
    """Return a check function; raise UsageError for one that cannot be called."""
    if inspect.iscoroutinefunction(check):
        raise UsageError(
            f"{named} is an `async def` function, and a check is called without await. "
            "Write `def check(task, calls, state)`."
        )
    try:
        if callable(check):  # None where a task's calls are its check
            inspect.signature(check).bind(None, (), {})
    except TypeError as error:
        raise UsageError(
            f"{named} cannot be called with a task, its calls and a state: {error}. "
            "Write `def check(task, calls, state)`."
        ) from None
    except ValueError:
        pass  # a function in C, whose signature is unknown
    found: Check = check
    return found


def importable(found: Any) -> tuple[list[str], str]:
    """Return the ``module:name`` of each function, and the folder to import from."""
    if isinstance(found, str):
        return [found], os.getcwd()
    places, folder = [], os.getcwd()
    for item in found if isinstance(found, list | tuple) else [found]:
        name = getattr(item, "__name__", "")
        module = sys.modules.get(getattr(item, "__module__", None) or "")
        file = getattr(module, "__file__", None)
        known = module is not None and getattr(module, name, None) is item
        if not known or module is None or file is None or module.__name__ == "__main__":
            raise UsageError(
                f"{name or repr(item)} cannot be imported by the processes of a "
                "training. Put it at the top of a module of its own, or name a list of "
                'tools there: tools="my_module:TOOLS".'
            )
        top = Path(inspect.getsourcefile(item) or file).resolve()
        depth = module.__name__.count(".") + (top.name == "__init__.py")
        folder = str(top.parents[depth])
        places.append(f"{module.__name__}:{name}")
    return places, folder
