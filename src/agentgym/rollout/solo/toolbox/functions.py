"""One's own functions as tools: async ones as they are, sync ones in a thread."""

import asyncio
import contextvars
import inspect
import threading
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

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


async def call_in_thread(function: Callable[..., Any], *args: Any, **named: Any) -> Any:
    """Run a sync function in a thread of its own and return its result.

    A thread that never ends is left behind: it holds up no other one, and no exit.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()
    context = contextvars.copy_context()

    def settle(result: Any, error: BaseException | None) -> None:
        if future.done():  # the rollout was given up meanwhile
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    def work() -> None:
        result: Any = None
        failure: BaseException | None = None
        try:
            result = context.run(function, *args, **named)
        except (StopIteration, SystemExit) as error:  # no future may hold these
            failure = RuntimeError(f"{type(error).__name__}: {error}")
        except BaseException as error:  # noqa: BLE001 - raised again by the caller
            failure = error
        if not loop.is_closed():
            loop.call_soon_threadsafe(settle, result, failure)

    threading.Thread(target=work, name="agentgym-tool", daemon=True).start()
    return await future


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
