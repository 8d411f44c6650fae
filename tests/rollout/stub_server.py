"""An OpenAI-compatible model server with a script, on its own thread."""

import asyncio
import ssl
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any, Self

from aiohttp import web

Handler = Callable[[web.Request, dict[str, Any]], Awaitable[web.StreamResponse]]


def completion(text: str = "Hello.", **fields: Any) -> dict[str, Any]:
    """Return a completion as vLLM sends it when asked for ids."""
    return {
        "id": "cmpl-1",
        "object": "chat.completion",
        "created": 1_790_000_000,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": text},
                "logprobs": {
                    "content": [{"token": "a", "logprob": -0.5, "top_logprobs": []}]
                },
                "finish_reason": "stop",
                "token_ids": [70_001],
                **fields,
            }
        ],
        "usage": {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4},
        "prompt_token_ids": [1, 2, 3],
    }


LISTED = 200, '{"data": [{"id": "/srv/folder"}]}'
"""The list of models of a server that was started without a name for its one."""


class StubServer:
    """Serves ``/v1/chat/completions``, ``/v1/completions`` and ``/v1/models``.

    Args:
        respond: Answers each request; None says hello.
        models: Status and body of the list of models.
        port: Where to listen; 0 takes a free one.
        tls: Makes it speak HTTPS.

    Attributes:
        bodies: What was asked, in order.
        lists: How often the list of models was asked for.
    """

    def __init__(
        self,
        respond: Handler | None = None,
        *,
        models: tuple[int, str] = (404, ""),
        port: int = 0,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._respond = respond
        self._tls = tls
        self._wanted = port
        self._models = models
        self.bodies: list[dict[str, Any]] = []
        self.lists = 0
        self._bound: Future[int] = Future()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(
            target=lambda: asyncio.run(self._serve()), daemon=True
        )

    def __enter__(self) -> Self:
        self._thread.start()
        self._bound.result()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Be gone, if it is not already."""
        if not self._thread.is_alive():
            return
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    @property
    def port(self) -> int:
        return self._bound.result()

    @property
    def endpoint(self) -> str:
        return f"http{'s' if self._tls else ''}://127.0.0.1:{self.port}/v1"

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        app = web.Application()
        app.router.add_post("/v1/{path:.+}", self._answer)
        app.router.add_get("/v1/models", self._list)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", self._wanted, ssl_context=self._tls)
        await site.start()
        self._bound.set_result(runner.addresses[0][1])
        await self._stop.wait()
        await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        self.bodies.append(body)
        if self._respond is None:
            return web.json_response(completion())
        return await self._respond(request, body)

    async def _list(self, request: web.Request) -> web.StreamResponse:
        self.lists += 1
        status, body = self._models
        return web.Response(status=status, text=body, content_type="application/json")
