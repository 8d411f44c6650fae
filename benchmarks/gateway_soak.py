"""The gateway for minutes: rollouts that begin, ask, and end, all the time.

64 clients, each of which queues a rollout, has its model calls answered by an instant
model server, reports a reward and ends it, and begins the next one. Every minute: the
gateway's memory, the latencies of model calls, and CPU per request. Then `agl-server`
with the same clients, for a shorter time: it keeps what it is told. Listens on
127.0.0.1 only.

    uv run python benchmarks/gateway_soak.py --minutes 10
"""

import argparse
import asyncio
import json
import secrets
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import psutil
from gateway import KEY, MODEL, REQUEST, cpu_seconds, run_fast, started
from machine import machine

CALLS = 8
"""Model calls of a rollout."""


@dataclass
class Minute:
    """What happened in a minute."""

    latencies: list[float] = field(default_factory=list)
    requests: int = 0


def main() -> None:
    """Measure ours, then theirs, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=int, default=10)
    parser.add_argument("--theirs", type=int, default=1, help="minutes of agl-server")
    parser.add_argument("--clients", type=int, default=64)
    options = parser.parse_args()
    be = [sys.executable, str(Path(__file__).with_name("gateway.py"))]
    agl = [sys.executable, "-m", "agentlightning.server", f"key={KEY}"]
    agl += [f"default_proxy.model_name={MODEL}", "host=127.0.0.1", "hydra.run.dir=."]
    agl += ["hydra.output_subdir=null", "hydra/job_logging=disabled"]
    print(f"{machine()}, {options.clients} clients\n")
    print(
        "| server | minute | memory, MiB | model calls/s | p50 ms | p99 ms | ", end=""
    )
    print("CPU ms per request |\n|---|---|---|---|---|---|---|")
    with (
        started([*be, "--be", "upstream"], "--port={}") as (_, upstream),
        tempfile.TemporaryDirectory() as folder,
    ):
        ours = [sys.executable, "-m", "agentgym", "gateway", "--model-name", MODEL]
        ours += ["--api-key", KEY, "--data", folder]
        with started(ours, "--port={}") as (process, url):
            measured = soak(url, upstream, options.clients, options.minutes, process)
            report("AgentGym", measured)
        with started(agl, "port={}") as (process, url):
            measured = soak(url, upstream, options.clients, options.theirs, process)
            report("agl-server", measured)


def report(name: str, rows: list[str]) -> None:
    """Print what was measured."""
    for row in rows:
        print(f"| {name} | {row} |", flush=True)


def soak(
    url: str, upstream: str, clients: int, minutes: int, process: psutil.Process
) -> list[str]:
    """Run clients for some minutes; return a row for each."""
    return run_fast(run(url, upstream, clients, minutes, process))


async def run(
    url: str, upstream: str, clients: int, minutes: int, process: psutil.Process
) -> list[str]:
    """Look at the server each minute while clients ask."""
    port = int(url.rsplit(":", 1)[1])
    now = [Minute()]
    server = {"model": MODEL, "endpoint": f"{upstream}/v1"}
    await Client(port, now).ask("POST", "/api/models", [server])
    tasks = [asyncio.create_task(Client(port, now).serve()) for _ in range(clients)]
    rows = []
    for number in range(1, minutes + 1):
        cpu, begun = cpu_seconds(process), time.perf_counter()
        done, _ = await asyncio.wait(tasks, timeout=60)
        for task in done:
            task.result()
        last, now[0] = now[0], Minute()
        wall = time.perf_counter() - begun
        cpu_ms = 1000 * (cpu_seconds(process) - cpu) / last.requests
        memory = process.memory_info().rss / 2**20
        found = sorted(1000 * latency for latency in last.latencies)
        cells = [number, f"{memory:.0f}", f"{len(found) / wall:.0f}"]
        cells += [f"{median(found):.1f}", f"{quantiles(found, n=100)[-1]:.1f}"]
        rows.append(" | ".join(map(str, [*cells, f"{cpu_ms:.2f}"])))
        print(rows[-1], file=sys.stderr, flush=True)
    for task in tasks:
        task.cancel()
    return rows


class Client:
    """An agent and who runs it, a connection each; costs little."""

    def __init__(self, port: int, now: list[Minute]) -> None:
        self._port = port
        self._now = now
        self._streams: dict[bool, Any] = {}

    async def serve(self) -> None:
        """Bring rollouts to their end, one after the other."""
        while True:
            name = secrets.token_hex(8)
            one, first = f"/api/rollouts/{name}", f"/api/rollouts/{name}/attempt/0"
            await self.ask("POST", "/api/rollouts", [{"rollout_id": name, "input": {}}])
            await self.ask("PATCH", one, {"status": {"state": "running"}})
            where = f"/proxy/rollout/{name}/attempt/0/mode/train/openai/v1"
            for _ in range(CALLS):
                begun = time.perf_counter()
                await self.ask("POST", f"{where}/chat/completions", REQUEST)
                self._now[0].latencies.append(time.perf_counter() - begun)
            reward = {"event_type": "reward", "data": {"value": 1.0}}
            await self.ask("POST", f"{first}/events", reward)
            await self.ask("PATCH", one, {"status": {"state": "succeeded"}})

    async def ask(self, method: str, path: str, value: Any) -> None:
        """Make a request; anything but success ends it all."""
        kind = path.startswith("/proxy")
        if kind not in self._streams:
            where = "127.0.0.1", self._port
            self._streams[kind] = await asyncio.open_connection(*where)
        reader, writer = self._streams[kind]
        body = json.dumps(value).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {KEY}\r\n"
        head += "Content-Type: application/json\r\n"
        writer.write(f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body)
        said = (await reader.readuntil(b"\r\n\r\n")).lower()
        length = int(said.split(b"content-length:")[1].split(b"\r\n")[0])
        answer = await reader.readexactly(length)
        if b" 20" not in said.split(b"\r\n", 1)[0]:
            raise RuntimeError(f"{method} {path} failed: {answer.decode()}")
        self._now[0].requests += 1


if __name__ == "__main__":
    main()
