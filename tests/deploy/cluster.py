"""As much of a Kubernetes cluster as Agent Lightning's controller asks of one.

Jobs are processes here: a container's arguments, with its variables and no others of
agents, after ``python -m agentgym``.
"""

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import orjson
import yaml
from aiohttp import web

from tests.deploy.manifests import pod

JOBS = "/apis/batch/v1/namespaces/{namespace}/jobs"


class Cluster:
    """An API server that knows Jobs.

    Attributes:
        jobs: By name, as they are now.
        told: What each job's process printed.
    """

    def __init__(self, namespace: str) -> None:
        self.jobs: dict[str, dict[str, Any]] = {}
        self.told: dict[str, str] = {}
        self.namespace = namespace
        self._watchers: list[asyncio.Queue[dict[str, Any]]] = []
        self._running: set[asyncio.Task[None]] = set()

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/version/", self._version),
            web.get(JOBS, self._list),
            web.post(JOBS, self._create),
        ]

    async def close(self) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def _version(self, request: web.Request) -> web.Response:
        version = {"major": "1", "minor": "31", "gitVersion": "v1.31.0"}
        return web.json_response(version)

    async def _list(self, request: web.Request) -> web.StreamResponse:
        assert request.match_info["namespace"] == self.namespace
        if request.query.get("watch") != "true":
            kind = {"apiVersion": "batch/v1", "kind": "JobList", "metadata": {}}
            return web.json_response({**kind, "items": list(self.jobs.values())})
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        news: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._watchers.append(news)
        while True:
            await response.write(orjson.dumps(await news.get()) + b"\n")

    async def _create(self, request: web.Request) -> web.Response:
        job = await request.json()
        name = job["metadata"]["name"]
        job["metadata"] |= {"resourceVersion": "1", "uid": name}
        self.jobs[name] = {**job, "status": {"active": 1}}
        self._tell("ADDED", name)
        task = asyncio.create_task(self._run(name))
        self._running.add(task)
        return web.json_response(self.jobs[name], status=201)

    async def _run(self, name: str) -> None:
        job = self.jobs[name]
        [container] = pod(job)["containers"]
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "agentgym", *container["args"]),
            env={
                **{k: v for k, v in os.environ.items() if not k.startswith("AGL_")},
                **{each["name"]: each["value"] for each in container["env"]},
                "HOME": os.environ["HOME"],
            },
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        try:
            output, _ = await process.communicate()
        except asyncio.CancelledError:
            with suppress(ProcessLookupError):
                process.kill()
            raise
        self.told[name] = output.decode(errors="replace")
        failed = {"type": "Failed", "reason": "BackoffLimitExceeded"}
        ended = {"type": "Complete"} if process.returncode == 0 else failed
        job["status"] = {"conditions": [{**ended, "status": "True"}]}
        self._tell("MODIFIED", name)

    def _tell(self, kind: str, name: str) -> None:
        for news in self._watchers:
            news.put_nowait({"type": kind, "object": self.jobs[name]})


@asynccontextmanager
async def running(namespace: str, kubeconfig: Path) -> AsyncIterator[Cluster]:
    """Serve a cluster whose address ``kubeconfig`` gets."""
    cluster = Cluster(namespace)
    app = web.Application()
    app.add_routes(cluster.routes())
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        here = {"cluster": "here", "user": "me"}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "here",
            "clusters": [{"name": "here", "cluster": {"server": url}}],
            "contexts": [{"name": "here", "context": here}],
            "users": [{"name": "me", "user": {"token": "none"}}],
        }
        kubeconfig.write_text(yaml.safe_dump(config))
        yield cluster
    finally:
        await cluster.close()
        await runner.cleanup()
