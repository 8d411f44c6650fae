"""GatewayModels: send all model calls in an episode to the gateway."""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from agentgym.core.background import ThreadsInContext
from agentgym.integrations.base import Blueprint
from agentgym.integrations.on_client.servers import Servers
from agentgym.integrations.openai_client import clients_redirected_to
from agentgym.integrations.redirect import answering, watch
from agentgym.integrations.registry import FRAMEWORKS
from agentgym.integrations.transport import (
    EpisodePosts,
    episode_client,
    sync_episode_client,
)


class GatewayModels:
    """One model per framework, for all agents that run in a worker's episodes.

    An agent's code may run agents of other frameworks, e.g. in a tool. Their model
    calls go to the gateway too.

    Attributes:
        blueprint: The settings, with the gateway's address.
        http: Client for requests to the gateway.
        sync_http: The sync version of ``http``.
        posts: Sends plain requests faster; None if that is not possible.
        servers: Keeps the agents' MCP servers open.
    """

    def __init__(self, blueprint: Blueprint) -> None:
        self.blueprint = blueprint
        self.http = episode_client(blueprint)
        self.sync_http = sync_episode_client(blueprint)
        self.posts = EpisodePosts.to(blueprint)
        self.servers = Servers()
        self._made: dict[str, Any] = {}
        self._making = threading.RLock()
        watch()

    def of(self, framework: str) -> Any:
        """Return a framework's model, which is created at its first use."""
        with self._making:
            if framework not in self._made:
                adapter = FRAMEWORKS.get(framework)
                adapter.check()
                self._made[framework] = adapter.gateway_model(self)
            return self._made[framework]

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Replace the models of all agents and OpenAI clients within the block."""
        loop = asyncio.get_running_loop()
        if getattr(loop, "_default_executor", None) is None:  # a worker has set its own
            loop.set_default_executor(ThreadsInContext())
        with (
            answering(self.of),
            clients_redirected_to(self.blueprint),
            self.servers.in_use(),
        ):
            yield

    async def close(self) -> None:
        """Close the connections, and the agents' MCP servers."""
        await self.servers.close()
        if self.posts is not None:
            self.posts.close()
        await self.http.aclose()
        self.sync_http.close()
