"""Redirect an agent's tool calls and questions to the user to the current episode.

If the episode has a tool with the called name, the episode's tool is run; otherwise the
agent's tool is run. An exception in the episode's tool becomes the result of the call,
because AutoGen's agents would otherwise wait for ever.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any

from autogen_core.tools import TextResultContent, ToolResult, Workbench

from agentgym.errors import ToolExitError
from agentgym.integrations.episode import EpisodeCut, current_episode
from agentgym.integrations.on_client.servers import Servers

Arguments = Mapping[str, Any] | None


async def _answered(name: str, arguments: Any, call_id: str | None) -> str:
    """Run a tool of the current episode; return its result, or an error as text."""
    is_object = arguments is None or isinstance(arguments, Mapping)
    given = dict(arguments or {}) if is_object else json.dumps(arguments)
    try:
        return await current_episode().use_tool(name, given, call_id=call_id)
    except Exception as error:  # noqa: BLE001 - the episode has recorded it
        return f"Error: {error}"


async def _result(name: str, arguments: Any, call_id: str | None) -> ToolResult:
    text = await _answered(name, arguments, call_id)
    return ToolResult(name=name, result=[TextResultContent(content=text)])


def route_tool(tool: Any) -> None:
    """Patch a tool: run the current episode's tool of the same name, if any."""
    run = tool.run_json
    name = tool.name

    async def run_json(
        args: Any, cancellation_token: Any, call_id: str | None = None
    ) -> Any:
        episode = current_episode()
        if name in episode.tools:
            return await _answered(name, args, call_id)
        try:
            return await run(args, cancellation_token, call_id)
        except SystemExit as end:
            error = ToolExitError(f"the tool {name} called sys.exit({end.code!r})")
            episode.crash = error
            raise error from None

    vars(tool)["run_json"] = run_json


def route_bench(bench: Any) -> None:
    """Patch a workbench: a call runs the episode's tool of that name, if there is one.

    The list of the workbench's tools is requested only once.
    """
    call, offered = bench.call_tool, bench.list_tools
    tools: list[Any] = []

    async def list_tools() -> list[Any]:
        if not tools:
            tools[:] = await offered()
        return tools

    async def call_tool(
        name: str,
        arguments: Arguments = None,
        cancellation_token: Any = None,
        call_id: str | None = None,
    ) -> Any:
        if name in current_episode().tools:
            return await _result(name, arguments, call_id)
        return await call(name, arguments, cancellation_token, call_id)

    vars(bench).update(list_tools=list_tools, call_tool=call_tool)
    if (stream := getattr(bench, "call_tool_stream", None)) is not None:
        vars(bench)["call_tool_stream"] = _routed_stream(stream)


def _routed_stream(stream: Callable[..., Any]) -> Callable[..., Any]:
    async def call_tool_stream(
        name: str,
        arguments: Arguments = None,
        cancellation_token: Any = None,
        call_id: str | None = None,
    ) -> AsyncGenerator[Any]:
        if name in current_episode().tools:
            yield await _result(name, arguments, call_id)
            return
        async for event in stream(name, arguments, cancellation_token, call_id):
            yield event

    return call_tool_stream


class RoutedWorkbench(Workbench):
    """Wraps a workbench of external tools, e.g. an MCP server, to share it.

    All episodes of a worker use the same workbench, so it stays open.
    """

    component_type = "workbench"

    def __init__(self, bench: Workbench, servers: Servers) -> None:
        self._bench = bench
        self._servers = servers

    async def list_tools(self) -> list[Any]:
        """Start the workbench if necessary, and return its current tools."""
        await self.start()
        return list(await self._bench.list_tools())

    async def call_tool(
        self,
        name: str,
        arguments: Arguments = None,
        cancellation_token: Any = None,
        call_id: str | None = None,
    ) -> ToolResult:
        """Call the episode's tool ``name``; if there is none, the workbench's tool."""
        if name in current_episode().tools:
            return await _result(name, arguments, call_id)
        await self.start()
        return await self._bench.call_tool(name, arguments, cancellation_token, call_id)

    async def start(self) -> None:
        """Start the workbench, unless it was started before."""
        await self._servers.open(self._bench, self._bench)

    async def stop(self) -> None:
        """Do nothing, because other episodes use the workbench too."""

    async def reset(self) -> None:
        """Do nothing, because other episodes use the workbench too."""

    async def save_state(self) -> Mapping[str, Any]:
        """Return the workbench's state."""
        return await self._bench.save_state()

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Do nothing, because other episodes use the workbench too."""


def contain_exit(agent: Any) -> None:
    """Patch an agent to raise RuntimeError when its code calls ``sys.exit``.

    Then only the episode ends, not the worker process.
    """
    stream = agent.on_messages_stream

    async def on_messages_stream(
        messages: Sequence[Any], cancellation_token: Any
    ) -> AsyncGenerator[Any]:
        try:
            async for event in stream(messages, cancellation_token):
                yield event
        except SystemExit as end:
            message = f"the agent {agent.name} called sys.exit({end.code!r})"
            raise RuntimeError(message) from None

    vars(agent)["on_messages_stream"] = on_messages_stream


class _InContext(ThreadPoolExecutor):
    def submit(self, work: Any, /, *args: Any, **named: Any) -> Any:
        return super().submit(copy_context().run, work, *args, **named)


def keep_context(loop: asyncio.AbstractEventLoop) -> None:
    """Give an event loop's threads the context variables of the code that starts them.

    AutoGen runs sync tools in these threads. Without the context variables, the tools
    would not find the current episode.
    """
    if not isinstance(getattr(loop, "_default_executor", None), _InContext):
        loop.set_default_executor(_InContext(thread_name_prefix="agentgym-autogen"))


def route_user(proxy: Any) -> None:
    """Make a ``UserProxyAgent`` ask the episode's simulated user, not the terminal."""
    stream = proxy.on_messages_stream
    heard = [""]

    def on_messages_stream(messages: Sequence[Any], cancellation_token: Any) -> Any:
        heard[0] = messages[-1].to_text() if messages else ""
        return stream(messages, cancellation_token)

    async def answer(prompt: str, cancellation_token: Any = None) -> str:
        episode = current_episode()
        reply = episode.user_reply(heard[0])
        if reply is None:
            message = f"the user has nothing to say to: {heard[0]}"
            episode.cut_short("interrupt", message)
            raise EpisodeCut("interrupt", message)
        return reply

    vars(proxy).update(
        on_messages_stream=on_messages_stream, input_func=answer, _is_async=True
    )
