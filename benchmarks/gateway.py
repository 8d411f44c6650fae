"""The gateway beside ``agl-server``, in front of the same instant model server.

Every cell runs for a fixed time with a fixed number of clients, each of which asks
again as soon as it is answered. CPU is that of the server's process alone. Listens
on 127.0.0.1 only.

    uv run python benchmarks/gateway.py --seconds 5
"""

import argparse
import asyncio
import json
import secrets
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles
from typing import Any

import httpx
import psutil
import uvloop
from machine import machine

KEY = "benchmark"
MODEL = "instant"
PROMPT_IDS = list(range(200))
RESPONSE_IDS = list(range(40))
TOOL = {
    "type": "function",
    "function": {
        "name": "read_file",
        "description": "Return the text of a file of the project.",
        "parameters": {
            "type": "object",
            "properties": {"path": {"type": "string", "description": "Relative."}},
            "required": ["path"],
        },
    },
}
REQUEST = {
    "model": MODEL,
    "messages": [
        {"role": "system", "content": "You repair small Python projects. " * 20},
        {"role": "user", "content": "What does the file util.py hold?"},
    ],
    "tools": [TOOL] * 8,
}
ANSWER = {
    "id": "chatcmpl-1",
    "object": "chat.completion",
    "created": 0,
    "model": MODEL,
    "prompt_token_ids": PROMPT_IDS,
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "It holds two functions."},
            "finish_reason": "stop",
            "token_ids": RESPONSE_IDS,
            "logprobs": {
                "content": [
                    {"token": "a", "logprob": -0.5, "bytes": None, "top_logprobs": []}
                    for _ in RESPONSE_IDS
                ]
            },
        }
    ],
    "usage": {"prompt_tokens": 200, "completion_tokens": 40, "total_tokens": 240},
}


@dataclass(frozen=True)
class Cell:
    """What one server did with one number of clients."""

    rate: float
    p50_ms: float
    p95_ms: float
    cpu_ms: float


def main() -> None:
    """Measure every server and print a table, or be one of the servers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=5.0, help="per cell")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 64, 512])
    parser.add_argument("--be", choices=["upstream", "forwarding", "policy"])
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args()
    if options.be == "upstream":
        run_fast(serve_upstream(options.port))
    elif options.be:
        serve_gateway(options.port, with_policy=options.be == "policy")
    else:
        compare(options.clients, options.seconds)


def compare(clients: list[int], seconds: float) -> None:
    """Measure everything in one run."""
    agl = [sys.executable, "-m", "agentlightning.server", f"key={KEY}"]
    agl += [f"default_proxy.model_name={MODEL}", "host=127.0.0.1", "hydra.run.dir=."]
    agl += ["hydra.output_subdir=null", "hydra/job_logging=disabled"]
    me = [sys.executable, str(Path(__file__).resolve())]
    with started([*me, "--be", "upstream"], "--port={}") as (_, upstream):
        servers = {
            "none (the model server alone)": ([], ""),
            "agl-server": (agl, "port={}"),
            "AgentGym": ([*me, "--be", "forwarding"], "--port={}"),
            "AgentGym, policy in process": ([*me, "--be", "policy"], "--port={}"),
        }
        cells: dict[tuple[str, int], Cell] = {}
        for name, (command, port) in servers.items():
            if not command:
                path = "/v1/chat/completions"
                for count in clients:
                    cells[name, count] = measure([path], upstream, count, seconds, None)
                continue
            with started(command, port) as (process, url):
                paths = prepare(url, upstream, max(clients), "policy" not in command)
                measure(paths, url, 8, 1.0, process)  # warm up
                for count in clients:
                    cells[name, count] = measure(paths, url, count, seconds, process)
    report(list(servers), clients, cells)


def report(servers: list[str], clients: list[int], cells: dict[Any, Cell]) -> None:
    """Print the table and the ratios."""
    print(f"{machine()}\n")
    print("| gateway | clients | requests/s | p50 ms | p95 ms | CPU ms per request |")
    print("|---|---|---|---|---|---|")
    for name in servers:
        for count in clients:
            c = cells[name, count]
            cpu = f"{c.cpu_ms:.2f}" if c.cpu_ms else ""
            row = f"| {name} | {count} | {c.rate:.0f} | {c.p50_ms:.1f} "
            print(f"{row}| {c.p95_ms:.1f} | {cpu} |")
    print()
    alone, theirs, ours, _ = servers
    for count in clients:
        a, b = cells[ours, count], cells[theirs, count]
        print(
            f"{count} clients: {a.rate / b.rate:.1f}x the requests/s, "
            f"{b.cpu_ms / a.cpu_ms:.1f}x less CPU"
        )
    low = min(clients)
    for name in (theirs, ours):
        added = cells[name, low].p50_ms - cells[alone, low].p50_ms
        print(f"{name} adds {added:.2f} ms (p50, {low} client)")


def prepare(url: str, upstream: str, count: int, forwards: bool) -> list[str]:
    """Create rollouts and register the model server; return the paths to ask."""
    prefix = secrets.token_hex(4)
    ids = [f"{prefix}-{i}" for i in range(count)]
    headers = {"Authorization": f"Bearer {KEY}"}
    with httpx.Client(base_url=url, headers=headers) as api:
        body = [{"rollout_id": i, "input": {}} for i in ids]
        api.post("/api/rollouts", json=body).raise_for_status()
        if forwards:
            model = {"model": MODEL, "endpoint": f"{upstream}/v1"}
            api.post("/api/models", json=[model]).raise_for_status()
    where = "/proxy/rollout/{}/attempt/0/mode/train/openai/v1/chat/completions"
    return [where.format(rollout_id) for rollout_id in ids]


def measure(
    paths: list[str],
    url: str,
    clients: int,
    seconds: float,
    process: psutil.Process | None,
) -> Cell:
    """Ask from ``clients`` connections for some time."""
    before = cpu_seconds(process)
    latencies, wall = run_fast(load(paths, url, clients, seconds))
    cpu = cpu_seconds(process) - before
    return Cell(
        rate=len(latencies) / wall,
        p50_ms=1000 * median(latencies),
        p95_ms=1000 * quantiles(latencies, n=20)[-1],
        cpu_ms=1000 * cpu / len(latencies),
    )


async def load(
    paths: list[str], url: str, clients: int, seconds: float
) -> tuple[list[float], float]:
    """Return every latency, and how long it took."""
    port = int(url.rsplit(":", 1)[1])
    latencies: list[float] = []
    started_at = time.perf_counter()
    await asyncio.gather(
        *(
            ask(paths[i % len(paths)], port, started_at + seconds, latencies)
            for i in range(clients)
        )
    )
    return latencies, time.perf_counter() - started_at


async def ask(path: str, port: int, until: float, latencies: list[float]) -> None:
    """Ask over one connection, written by hand so that the client costs little."""
    body = json.dumps(REQUEST).encode()
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {KEY}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    request = head.encode() + body
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    while (begun := time.perf_counter()) < until:
        writer.write(request)
        answer = (await reader.readuntil(b"\r\n\r\n")).lower()
        if b" 200 " not in answer.split(b"\r\n", 1)[0]:
            raise RuntimeError(f"a request failed: {answer.decode()}")
        length = answer.split(b"content-length:")[1].split(b"\r\n")[0]
        await reader.readexactly(int(length))
        latencies.append(time.perf_counter() - begun)
    writer.close()


def cpu_seconds(process: psutil.Process | None) -> float:
    """Return what a process has used; 0 for none."""
    if process is None:
        return 0.0
    times = process.cpu_times()
    return float(times.user + times.system)


@contextmanager
def started(command: list[str], port_argument: str) -> Iterator[tuple[Any, str]]:
    """Run a server on a free port until the block ends."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryFile() as log:
        process = subprocess.Popen(
            [*command, port_argument.format(port)], stdout=log, stderr=log
        )
        try:
            deadline = time.monotonic() + 60
            while process.poll() is None and time.monotonic() < deadline:
                try:
                    socket.create_connection(("127.0.0.1", port), 1).close()
                    break
                except OSError:
                    time.sleep(0.05)
            else:
                log.seek(0)
                raise RuntimeError(f"{command} did not start: {log.read().decode()}")
            yield psutil.Process(process.pid), f"http://127.0.0.1:{port}"
        finally:
            process.terminate()
            process.wait()


class Instant(asyncio.Protocol):
    """Answers every request with the same bytes."""

    def __init__(self) -> None:
        body = json.dumps(ANSWER).encode()
        head = "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: "
        self._answer = f"{head}{len(body)}\r\n\r\n".encode() + body
        self._buffer = b""
        self._transport: Any = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember whom to answer."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer once a request is complete."""
        self._buffer += data
        while b"\r\n\r\n" in self._buffer:
            head, rest = self._buffer.split(b"\r\n\r\n", 1)
            length = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0])
            if len(rest) < length:
                return
            self._buffer = rest[length:]
            self._transport.write(self._answer)


async def serve_upstream(port: int) -> None:
    """Be the instant model server."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(Instant, "127.0.0.1", port, backlog=1024)
    await server.serve_forever()


def serve_gateway(port: int, *, with_policy: bool) -> None:
    """Be our gateway, its store on disk."""
    from agentgym.core.collector import calm_collector
    from agentgym.core.policy import ChatResult
    from agentgym.engines.scripted import ScriptedPolicy
    from agentgym.rollout.gateway.gateway import Gateway
    from agentgym.rollout.gateway.protocol import GatewaySettings
    from agentgym.rollout.store.store import Store

    class InstantPolicy(ScriptedPolicy):
        """Answers as the instant model server does."""

        def __init__(self) -> None:
            pass

        async def chat(self, request: Any) -> ChatResult:
            """Answer at once."""
            return ChatResult(
                prompt_ids=PROMPT_IDS,
                response_ids=RESPONSE_IDS,
                logprobs=[-0.5] * len(RESPONSE_IDS),
                content="It holds two functions.",
                tool_calls=[],
                finish_reason="stop",
                model_version=0,
            )

    settings = GatewaySettings(port=port, api_key=KEY, model_name=MODEL)
    policy = InstantPolicy() if with_policy else None
    with (
        calm_collector(),  # as `agentgym gateway` has it
        tempfile.TemporaryDirectory() as folder,
        Store(Path(folder) / "rollouts.db") as store,
        Gateway(store, policy=policy, settings=settings),
    ):
        while True:
            time.sleep(60)


def run_fast[T](main: Coroutine[Any, Any, T]) -> T:
    """Run on the loop that the gateway has."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(main)


if __name__ == "__main__":
    main()
