"""Servers: keep the MCP servers of a worker's agents open for all its episodes."""

import asyncio
from contextlib import AbstractAsyncContextManager, AbstractContextManager
from contextvars import Context, ContextVar
from typing import Any

from agentgym.integrations.redirect import holding

Connection = AbstractAsyncContextManager[Any]
"""A context manager that connects to a server, and closes the server on exit."""

_CURRENT: ContextVar["Servers | None"] = ContextVar("agentgym_servers", default=None)


def current_servers() -> "Servers | None":
    """Return the servers that the current episode's worker keeps open, if any."""
    return _CURRENT.get()


class Servers:
    """Opens each MCP server at its first use, and closes all servers at the end.

    Each server has an asyncio task that opens and closes it, because the MCP package
    requires the same task for both. The task does not belong to an episode.
    """

    def __init__(self) -> None:
        self._opened: dict[int, tuple[Any, asyncio.Future[None]]] = {}
        self._tasks: list[asyncio.Task[None]] = []
        self._ending = asyncio.Event()

    def in_use(self) -> AbstractContextManager[None]:
        """Let the agents within the block share their MCP servers with other ones."""
        return holding(_CURRENT, self)

    async def open(self, server: Any, connection: Connection) -> None:
        """Open a server with ``connection``, unless an earlier call opens it.

        Return when the server is open. If it cannot be opened, all calls raise the same
        exception.
        """
        if id(server) not in self._opened:
            loop = asyncio.get_running_loop()
            opened: asyncio.Future[None] = loop.create_future()
            self._opened[id(server)] = server, opened
            holding = self._hold(connection, opened)
            self._tasks.append(loop.create_task(holding, context=Context()))
        await asyncio.shield(self._opened[id(server)][1])

    def is_open(self, server: Any) -> bool:
        """Return whether a server was opened successfully."""
        _, opened = self._opened.get(id(server), (None, None))
        return opened is not None and opened.done() and opened.exception() is None

    async def close(self) -> None:
        """Close all servers, even if some of them fail to close."""
        self._ending.set()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _hold(
        self, connection: Connection, opened: "asyncio.Future[None]"
    ) -> None:
        try:
            async with connection:
                opened.set_result(None)
                await self._ending.wait()
        except BaseException as error:
            if opened.done():
                raise
            opened.set_exception(error)
