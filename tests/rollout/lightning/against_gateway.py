"""A pytest plugin: Agent Lightning's endpoint tests meet ``agentgym gateway``.

Their tests make a server of theirs in the test's process, and patch a function of it to
be the model server. Here making that server starts ours, and what was patched answers
behind a real one. No line of their tests is changed.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from typing import Any, Self

import httpx
from agentlightning.server import app, proxy
from aiohttp import web
from fastapi import testclient

_FAR = "http://model.test/v1"


class PatchedServer:
    """A model server that answers with what a test has patched theirs with."""

    def __init__(self) -> None:
        self._started = threading.Event()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.wait()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    async def _serve(self) -> None:
        self._loop = asyncio.get_running_loop()
        served = web.Application()
        served.router.add_post("/v1/{path:.+}", self._answer)
        runner = web.AppRunner(served, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/v1"
        self._started.set()
        await self._stop.wait()
        await runner.cleanup()

    async def _answer(self, request: web.Request) -> web.Response:
        ask: Any = proxy._send_upstream_with_retries
        async with httpx.AsyncClient() as client:
            url = f"{_FAR}/{request.match_info['path']}"
            said = await ask(client=client, url=url, body=await request.json())
        kind = said.headers["content-type"]
        return web.Response(
            body=said.content, status=said.status_code, content_type=kind
        )


class GatewayClient(httpx.Client):
    """A client of an ``agentgym gateway`` that runs as long as it is open.

    The address that their tests give a model server is that of the patched one.

    Args:
        config: Of the server that the test wants.
    """

    def __init__(self, config: dict[str, Any]) -> None:
        super().__init__(timeout=30)
        self._config = config

    def __enter__(self) -> Self:
        self._folder = tempfile.TemporaryDirectory()
        words = ["gateway", "--port", "0", "--data", self._folder.name]
        words += ["--model-name", self._config["default_proxy"]["model_name"]]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "agentgym", *words],
            env={**os.environ, "AGENTGYM_GATEWAY_KEY": self._config["key"]},
            stdout=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.strip().startswith("address "):
                self.base_url = httpx.URL(line.split()[1])
                break
        self._model = PatchedServer().__enter__()
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._model.__exit__()
        self._process.send_signal(signal.SIGTERM)
        self._process.communicate(timeout=60)
        self._folder.cleanup()

    def request(self, method: str, url: Any, **options: Any) -> httpx.Response:
        if method == "POST" and url == "/api/models":
            text = json.dumps(options["json"]).replace(_FAR, self._model.url)
            options["json"] = json.loads(text)
        return super().request(method, url, **options)


app.create_app = lambda config: config  # type: ignore[assignment, return-value]
testclient.TestClient = GatewayClient  # type: ignore[assignment, misc]
