"""One's own functions as tools: async ones as they are, sync ones in a thread."""

import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from agentgym.core.background import call_in_thread
from agentgym.core.tools import Tool, bound_tools, result_text, spec_of
from agentgym.errors import ToolError, UsageError


def own_tools(source: Any) -> list[Tool]:
    """Return the tools that a user gave as a function or an object.

    Args:
        source: A function with types and a docstring, marked with ``@tool`` or not;
            a :class:`Tool`; or an object with methods marked with ``@tool``.

    Raises:
        UsageError: It is none of these.
        ScenarioError: A docstring or an annotation is missing.
    """
    if isinstance(source, Tool):
        return [source]
    if inspect.isfunction(source) or inspect.ismethod(source):
        return [Tool(spec_of(source), _shown(source))]
    if not isinstance(source, type) and (found := bound_tools(source)):
        return [Tool(one.spec, _shown(one.function)) for one in found]
    raise UsageError(
        f"{source!r} is no tool; give a name, a function, or an object with methods "
        "marked with @tool."
    )


def _shown(function: Callable[..., Any]) -> Callable[..., Awaitable[str]]:
    """Return ``function`` with its result, and what it raises, as text."""

    async def call(**arguments: Any) -> str:
        try:
            if inspect.iscoroutinefunction(function):
                result = await function(**arguments)
            else:
                result = await call_in_thread(function, **arguments)
                if inspect.isawaitable(result):
                    result = await result
        except ToolError:
            raise
        except Exception as error:  # the user's own code; the agent may try again
            raise ToolError(f"{type(error).__name__}: {error}") from error
        return result_text(result)

    return call


def unique(tools: Sequence[Tool]) -> list[Tool]:
    """Return ``tools`` as they are.

    Raises:
        UsageError: Two have the same name.
    """
    names = [one.spec.name for one in tools]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UsageError(f"Two tools are named {twice[0]!r}; rename one.")
    return list(tools)
