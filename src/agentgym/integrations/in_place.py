"""Run an agent's live tools at the point where the framework calls them.

A live tool is a tool of the user that really runs in training. If it takes the context
of the agent's run, it cannot run outside of that run. So a live tool is run where its
framework calls it, and the episode records the call.
"""

import inspect
import sys
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

from agentgym.core.background import call_in_thread
from agentgym.core.tools import PENDING, RunInPlace, Tool, ToolSpec, pending_run
from agentgym.errors import RolloutError, ToolExitError
from agentgym.integrations.base import FrameworkAdapter
from agentgym.integrations.episode import Episode, episode_or_none
from agentgym.integrations.redirect import holding
from agentgym.integrations.registry import FRAMEWORKS
from agentgym.integrations.witness import saw

_DEEPEST = 12
_MOST_REACHED = 5_000


@dataclass
class CallInPlace:
    """One call of a live tool, run by the framework's own code.

    The framework gets the tool's own result, or the exception by which the tool steers
    the framework; the episode records a copy.

    Attributes:
        name: The tool's name.
        run: Runs the tool with the call's arguments.
        function: The author's function, whose annotation shows the result's type.
        read: Converts the result to the text or JSON that the model reads.
        answer: Converts the text of a tool that did not run to the framework's result.
        handled: Exceptions that the framework converts to a text for the model. The
            episode records them as failed calls.
        not_done: Exceptions that end the call before it is done, e.g. LangGraph's
            ``interrupt()``. The episode does not record the call.
    """

    name: str
    run: RunInPlace
    function: Any = None
    read: Callable[[Any], Any] = lambda result: result
    answer: Callable[[str], Any] = lambda text: text
    handled: tuple[type[Exception], ...] = ()
    not_done: tuple[type[Exception], ...] = ()
    _results: list[Any] = field(default_factory=list, init=False)
    _error: Exception | None = field(default=None, init=False)

    @contextmanager
    def running(self) -> Iterator[None]:
        """Make the live tool run this call within the block."""
        try:
            with holding(PENDING, (self.name, self._called, self.function)):
                yield
        except _NotDone as end:
            raise end.error from None

    async def _called(self, arguments: dict[str, Any]) -> Any:
        try:
            result = await _as_it_is(self.name, self.run, arguments)
        except self.not_done as error:
            raise _NotDone(error) from None
        except self.handled as error:
            self._error = error
            raise
        self._results = [result]
        return self.read(result)

    def result(self, text: str) -> Any:
        """Return the tool's own result, or that for ``text`` if the tool did not run.

        If the tool raised an exception that the framework handles, raise it again.
        """
        if self._error is not None:
            raise self._error
        return self._results[0] if self._results else self.answer(text)


class _NotDone(BaseException):
    """Passes the exception of a call that is not done by code that records calls."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


_AS_THEY_ARE: ContextVar[frozenset[str]] = ContextVar(
    "agentgym_real_tools", default=frozenset()
)


def tool_as_it_is(name: str) -> AbstractContextManager[None]:
    """Run the tool ``name`` within the block with its own code, even in an episode."""
    return holding(_AS_THEY_ARE, _AS_THEY_ARE.get() | {name})


def episode_of_call(
    name: str, passes_control: Callable[[], bool] = lambda: False
) -> Episode | None:
    """Return the episode that runs a call of the tool ``name``.

    None if the agent's own code runs the call: outside of episodes, and if the episode
    has no such tool. A tool that passes control to another agent is run by the agent's
    own code, unless the scenario defines a tool of that name.
    """
    episode = None if name in _AS_THEY_ARE.get() else episode_or_none()
    if episode is None:
        return None
    if name not in episode.tools and passes_control():
        saw(passes=name)
        return None
    return episode if episode.has(name) else None


async def called(
    name: str,
    arguments: str | dict[str, Any],
    run: Callable[[Any], Awaitable[Any]],
    passes_control: Callable[[], bool],
    *,
    call_id: str | None = None,
    **how: Any,
) -> Any:
    """Call a tool: the episode's, if it has one of this name, else the agent's own.

    ``run`` runs the agent's own tool: with the call's arguments in an episode, else
    with None. ``how`` are further arguments of :class:`CallInPlace`.
    """
    if (episode := episode_of_call(name, passes_control)) is None:
        with ending_episode(name):
            return await run(None)
    call = CallInPlace(name, run, **how)
    with call.running():
        text = await episode.use_tool(name, arguments, call_id=call_id)
    return call.result(text)


def called_sync(
    name: str,
    arguments: str | dict[str, Any],
    run: Callable[[Any], Any],
    passes_control: Callable[[], bool],
    *,
    call_id: str | None = None,
    **how: Any,
) -> Any:
    """Call a tool as :func:`called` does, from sync code; ``run`` is sync."""
    if (episode := episode_of_call(name, passes_control)) is None:
        with ending_episode(name):
            return run(None)
    call = CallInPlace(name, partial(in_thread, run), **how)
    with ending_episode(name), call.running():
        text = episode.use_tool_sync(name, arguments, call_id=call_id)
    return call.result(text)


async def in_thread(function: Callable[..., Any], *args: Any, **named: Any) -> Any:
    """Run a tool in a thread; raise its SystemExit, which a thread cannot pass on."""

    def contained() -> Any:
        try:
            return function(*args, **named)
        except SystemExit as end:
            return end

    found = await call_in_thread(contained)
    if isinstance(found, SystemExit):
        raise found
    return found


def runs_agent(function: Any) -> bool:
    """Return whether a tool's function names an agent of any framework that acts."""
    if function is None:
        return False
    return any(
        each.acts(value)
        for value in reached(function)
        for each in _adapters()
        if any(map(each.owns, _roots(value)))  # the others need not be installed
    )


@cache
def _adapters() -> tuple[FrameworkAdapter, ...]:
    return tuple(FRAMEWORKS.get(name) for name in FRAMEWORKS)


def _roots(value: Any) -> set[str]:
    is_named = inspect.isroutine(value) or inspect.isclass(value)
    kinds = [value] if is_named else type(value).__mro__
    return {str(kind.__module__).partition(".")[0] for kind in kinds}


def reached(start: Any, *, with_parts: bool = False) -> Iterator[Any]:
    """Yield the objects that a function's code names, also in functions that it names.

    Functions of libraries are not followed. ``with_parts`` also yields the parts of the
    user's and of frameworks' objects.
    """
    seen, waiting = {id(start)}, deque([(start, 0)])
    while waiting and len(seen) < _MOST_REACHED:
        value, depth = waiting.popleft()
        yield value
        for inner, is_followed in _held(value, with_parts) if depth < _DEEPEST else ():
            if id(inner) not in seen:
                seen.add(id(inner))
                waiting.append((inner, depth + 1 if is_followed else _DEEPEST))


def _held(value: Any, with_parts: bool) -> Iterator[tuple[Any, bool]]:
    """Yield the objects that an object holds, and whether to follow each further."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list | tuple | set):
        yield from ((each, True) for each in value)
    elif inspect.isroutine(value):
        function = inspect.unwrap(value)
        try:
            names = inspect.getclosurevars(function)
        except (TypeError, ValueError):  # not a Python function, or an empty cell
            return
        yield from ((each, True) for each in names.nonlocals.values())
        is_users = _is_users(function)
        yield from ((each, is_users) for each in names.globals.values())
        own = getattr(getattr(value, "__self__", None), "__dict__", {})
        yield from ((own[name], True) for name in names.unbound if name in own)
    elif not inspect.isclass(value) and not inspect.ismodule(value):
        kind = type(value)
        is_users = _is_users(kind)
        if with_parts and (is_users or _is_frameworks(kind)):
            parts = getattr(value, "__dict__", {})
            yield from ((each, True) for each in parts.values())
        if with_parts and is_users and callable(value):
            yield value.__call__, True
        if isinstance(value, partial):
            yield value.func, True


def _is_users(value: Any) -> bool:
    """Return whether a class or function is the user's own, not one of a library."""
    name = value.__module__ or ""
    root = name.partition(".")[0]
    if root == "agentgym" or root in sys.stdlib_module_names - {"__main__"}:
        return False
    file = getattr(sys.modules.get(name), "__file__", None) or ""
    return not any(folder in file for folder in ("site-packages", "dist-packages"))


def _is_frameworks(kind: type) -> bool:
    root = kind.__module__.partition(".")[0]
    return any(each.owns(root) for each in _adapters())


@contextmanager
def ending_episode(name: str) -> Iterator[None]:
    """End the episode if the tool ``name`` calls ``sys.exit``, or in a wrong thread.

    For frameworks that would show the exception to the model, and continue.
    """
    episode = episode_or_none()
    try:
        yield
    except SystemExit as end:
        if episode is None:
            raise
        message = f"the tool {name} called sys.exit({end.code!r})"
        episode.crash = ToolExitError(message)
        raise episode.crash from None
    except RolloutError as error:
        if episode is not None:
            episode.crash = episode.crash or error
        raise


async def _as_it_is(name: str, run: RunInPlace, arguments: dict[str, Any]) -> Any:
    try:
        with tool_as_it_is(name):
            return await run(arguments)
    except SystemExit as end:
        raise ToolExitError(f"{name} called sys.exit({end.code!r})") from None


def live_tool(spec: ToolSpec, run: RunInPlace, returned: Any = None) -> Tool:
    """Return an AgentGym tool with the schema ``spec`` that calls ``run``.

    Within :meth:`CallInPlace.running`, it runs that call instead.
    ``returned`` is the type of the results, or None if unknown. Stubs, which replace
    tools in training, invent results of this type.
    """

    async def call(**arguments: Any) -> Any:
        if (here := pending_run(spec.name)) is not None:
            return await here(arguments)
        return await _as_it_is(spec.name, run, arguments)

    if returned is not None:
        call.__annotations__["return"] = returned
    return Tool(spec, call, as_written=True)
