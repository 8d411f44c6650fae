"""Redirect AutoGen's model clients, tools and questions to the user in an episode.

If an agent calls a tool and the current episode has a tool of the same name, the
episode's tool is run. An exception in it becomes the result of the call, because
AutoGen's agents would otherwise wait for ever. Some of the patched classes are not
public: a test fails when a new version of AutoGen changes them.
"""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from functools import wraps
from typing import Any

from autogen_agentchat.agents import BaseChatAgent, UserProxyAgent
from autogen_core.models import ChatCompletionClient
from autogen_core.tools import (
    BaseTool,
    StaticWorkbench,
    TextResultContent,
    ToolResult,
    Workbench,
)

from agentgym.errors import ToolError
from agentgym.integrations.client_adapter import current_servers
from agentgym.integrations.episode import Episode, EpisodeCut, episode_or_none
from agentgym.integrations.in_place import (
    called,
    ending_episode,
    episode_of_call,
    runs_agent,
)
from agentgym.integrations.redirect import patch_methods, replace_calls

_HEARD = "_agentgym_heard"
_LISTED = "_agentgym_listed"
_PASSING_ON = "autogen_agentchat"


def patch() -> None:
    """Patch model clients, tools, workbenches, agents and people.

    Workbenches of external tools, e.g. MCP servers, stay open for all episodes of a
    worker. Other workbenches list their tools only once. An agent whose code calls
    ``sys.exit`` ends its episode, not the worker process.
    """
    replace_calls(ChatCompletionClient, ("create", "create_stream"), "autogen")
    patch_methods(BaseTool, ("run_json",), _running)
    patch_methods(Workbench, ("call_tool",), _calling)
    patch_methods(Workbench, ("call_tool_stream",), _calling_stream)
    patch_methods(Workbench, ("list_tools",), _listing)
    patch_methods(Workbench, ("start",), _starting)
    patch_methods(Workbench, ("stop", "reset", "load_state"), _staying)
    patch_methods(BaseChatAgent, ("on_messages_stream",), _answering)
    _patch_users()


def _running(run_json: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(run_json)
    async def routed(
        self: Any, args: Any, cancellation_token: Any, call_id: str | None = None
    ) -> Any:
        async def run(given: Any) -> Any:
            return await run_json(self, given, cancellation_token, call_id)

        if episode_of_call(self.name, lambda: _passes_on(self)) is not None:
            read = self.return_value_as_string
            function = getattr(self, "_func", None)
            return await _called(self.name, args, call_id, run, read, function)
        with ending_episode(self.name):
            return await run(args)

    return routed


def _passes_on(tool: Any) -> bool:
    """Return whether a tool runs another agent or team, or hands over to it."""
    function = getattr(tool, "_func", None)
    parts = (type(tool), function)
    is_autogens = any(str(x.__module__).startswith(_PASSING_ON) for x in parts if x)
    return is_autogens or runs_agent(function)


async def _called(
    name: str,
    arguments: Any,
    call_id: str | None,
    run: Callable[[Any], Awaitable[Any]],
    read: Callable[[Any], Any],
    function: Any = None,
) -> Any:
    """Run a tool of the episode; return its result, or an error as text.

    A live tool runs in place, by ``run``; the model reads ``read(result)``.
    """

    async def run_in_place(given: dict[str, Any]) -> Any:
        try:
            return await run(given)
        except Exception as error:
            raise ToolError(str(error)) from error  # AutoGen shows it to the model

    how: Any = {"call_id": call_id, "function": function, "read": read}
    try:
        return await called(
            name, written(arguments), run_in_place, lambda: False, **how
        )
    except Exception as error:  # noqa: BLE001 - the episode has recorded it
        return f"Error: {error}"


def written(arguments: Any) -> str | dict[str, Any]:
    """Return a call's arguments: a dict, or the JSON of another value."""
    if arguments is None or isinstance(arguments, Mapping):
        return dict(arguments or {})
    return json.dumps(arguments)


def _is_external(bench: Any) -> bool:
    """Return whether a workbench is one of external tools that episodes share."""
    return current_servers() is not None and not isinstance(bench, StaticWorkbench)


async def _open(bench: Any) -> None:
    servers = current_servers()
    if servers is not None and _is_external(bench):
        await servers.open(bench, bench)  # it starts outside of the episode


def _episode_of(bench: Any, name: str) -> Episode | None:
    held = getattr(bench, "_tools", ())
    return episode_of_call(
        name, lambda: any(_passes_on(x) for x in held if x.name == name)
    )


def _calling(call_tool: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(call_tool)
    async def routed(
        self: Any,
        name: str,
        arguments: Any = None,
        cancellation_token: Any = None,
        call_id: str | None = None,
    ) -> Any:
        async def run(given: Any) -> Any:
            await _open(self)
            return await call_tool(self, name, given, cancellation_token, call_id)

        def read(result: Any) -> str:
            if result.is_error:
                raise ToolError(result.to_text())
            return str(result.to_text())

        if _episode_of(self, name) is None:
            return await run(arguments)
        found = await _called(name, arguments, call_id, run, read)
        if isinstance(found, ToolResult):
            return found
        return ToolResult(name=name, result=[TextResultContent(content=found)])

    return routed


def _calling_stream(stream: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(stream)
    async def routed(
        self: Any, name: str, *args: Any, **named: Any
    ) -> AsyncGenerator[Any]:
        if _episode_of(self, name) is not None:
            yield await self.call_tool(name, *args, **named)
            return
        async for event in stream(self, name, *args, **named):
            yield event

    return routed


def _listing(list_tools: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(list_tools)
    async def routed(self: Any) -> Any:
        if current_servers() is None or _is_external(self):
            await _open(self)
            return await list_tools(self)
        if _LISTED not in vars(self):
            vars(self)[_LISTED] = await list_tools(self)
        return vars(self)[_LISTED]

    return routed


def _starting(start: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(start)
    async def routed(self: Any) -> None:
        await (_open(self) if _is_external(self) else start(self))

    return routed


def _staying(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    async def routed(self: Any, *args: Any) -> None:
        if not _is_external(self):
            await method(self, *args)

    return routed


def _answering(stream: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(stream)
    async def routed(self: Any, *args: Any, **named: Any) -> AsyncGenerator[Any]:
        try:
            async for event in stream(self, *args, **named):
                yield event
        except SystemExit as end:
            if episode_or_none() is None:
                raise
            message = f"the agent {self.name} called sys.exit({end.code!r})"
            raise RuntimeError(message) from None

    return routed


def _patch_users() -> None:
    """Patch ``UserProxyAgent`` to ask the episode's user, not the terminal."""
    kind: Any = UserProxyAgent
    stream, ask = kind.on_messages_stream, kind._get_input

    def on_messages_stream(self: Any, messages: Any, cancellation_token: Any) -> Any:
        vars(self)[_HEARD] = messages[-1].to_text() if messages else ""
        return stream(self, messages, cancellation_token)

    async def _get_input(self: Any, prompt: str, cancellation_token: Any) -> Any:
        if (episode := episode_or_none()) is None:
            return await ask(self, prompt, cancellation_token)
        heard = vars(self).get(_HEARD, "")
        reply = episode.user_reply(heard)
        if reply is None:
            message = f"the user has nothing to say to: {heard}"
            episode.cut_short("interrupt", message)
            raise EpisodeCut("interrupt", message)
        return reply

    kind.on_messages_stream, kind._get_input = on_messages_stream, _get_input
