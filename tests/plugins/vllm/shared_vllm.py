"""Is ``vllm serve`` for runs that share a vLLM, which takes a minute to start.

It stands for vLLM in the environments of tests: their command is a script that runs
this file, with the server in the JSON file that SHARED_VLLM names. Only a command line
like the server's own is taken. Adapters of earlier runs are unloaded; every request is
passed on, and is a line of the file SHARED_VLLM_SEEN.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import aiohttp
from aiohttp import web


class SharedVllm:
    """Passes requests on to the server, each with the server's key."""

    def __init__(self, server: dict[str, Any]) -> None:
        self._address, self._model = server["address"], server["model"]
        self._session = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {server['key']}"},
            timeout=aiohttp.ClientTimeout(total=600),
        )

    async def application(self) -> web.Application:
        async with self._session.get(f"{self._address}/v1/models") as answer:
            names = [card["id"] for card in (await answer.json())["data"]]
        for name in names:
            if name != self._model:
                await self._session.post(
                    f"{self._address}/v1/unload_lora_adapter", json={"lora_name": name}
                )
        app = web.Application(client_max_size=2**26)
        app.router.add_route("*", "/{path:.*}", self.forward)
        app.on_cleanup.append(lambda _: self._session.close())
        return app

    async def forward(self, request: web.Request) -> web.StreamResponse:
        own = f"Bearer {os.environ['VLLM_API_KEY']}"
        if (
            request.path.startswith("/v1")
            and request.headers.get("Authorization") != own
        ):
            return web.json_response({"error": "Unauthorized"}, status=401)
        data = await request.read()
        if data:
            body = json.loads(data)
            note(request.path, body.get("lora_name") or body.get("model"))
        kind = {"Content-Type": request.headers.get("Content-Type", "text/plain")}
        async with self._session.request(
            request.method, self._address + request.path_qs, data=data, headers=kind
        ) as answer:
            response = web.StreamResponse(status=answer.status)
            response.content_type = answer.content_type
            await response.prepare(request)
            async for part in answer.content.iter_any():
                await response.write(part)
            await response.write_eof()
        return response


def note(path: str, name: str) -> None:
    with Path(os.environ["SHARED_VLLM_SEEN"]).open("a") as file:
        file.write(json.dumps({"path": path, "name": name}) + "\n")


def main() -> None:
    *words, port = sys.argv[1:]
    server = json.loads(Path(os.environ["SHARED_VLLM"]).read_text())
    if words != server["words"]:
        sys.exit(f"The server was started with {server['words']}, not with {words}.")

    async def application() -> web.Application:
        return await SharedVllm(server).application()

    web.run_app(application(), host="127.0.0.1", port=int(port), print=None)


if __name__ == "__main__":
    main()
