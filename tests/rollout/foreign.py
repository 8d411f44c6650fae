"""A trainer elsewhere, as it shows over HTTP, and the servers of its policy."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx

from agentgym.core.config import TrainingConfig
from agentgym.core.task import Split, Task
from agentgym.plugins.lightning.service import GatewayService
from agentgym.rollout.gateway.protocol import GatewaySettings
from agentgym.rollout.record import as_row
from agentgym.rollout.session import DATABASE_FILE
from agentgym.scenarios.registry import get_scenario
from agentgym.scenarios.task_lists import make_tasks

MODEL = "the-model"
KEY = "a key"


def list_then_answer(body: dict[str, Any]) -> dict[str, Any]:
    """Answer like a server of a policy: call a tool once, then say so."""
    message: dict[str, Any] = {"role": "assistant", "content": "Done."}
    if body["messages"][-1]["role"] != "tool":
        function = {"name": "list_files", "arguments": "{}"}
        message["content"] = None
        message["tool_calls"] = [{"id": "c", "type": "function", "function": function}]
    count = len(body["messages"])
    choice = {
        "index": 0,
        "message": message,
        "finish_reason": "tool_calls" if "tool_calls" in message else "stop",
        "token_ids": [7, 8],
        "logprobs": {"content": [{"token": t, "logprob": -0.5} for t in "ab"]},
    }
    return {
        "id": "x",
        "object": "chat.completion",
        "created": 0,
        "model": body["model"],
        "prompt_token_ids": list(range(1, count + 1)),
        "choices": [choice],
        "usage": {"prompt_tokens": count, "completion_tokens": 2, "total_tokens": 2},
    }


def at_once() -> None:
    """Hold no answer back."""


@contextmanager
def model_server(before: Callable[[], Any] = at_once) -> Iterator[str]:
    """Yield the base URL of a server of the policy; ``before`` may hold answers up."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            before()
            data = json.dumps(list_then_answer(body)).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *_: Any) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()


def tasks(count: int) -> list[Task]:
    """Return tasks of the coding scenario."""
    scenario = get_scenario("coding")
    try:
        return make_tasks(scenario, Split.TRAIN, 0, count)
    finally:
        scenario.close()


def queue(api: httpx.Client, chosen: list[Task], **fields: Any) -> list[str]:
    """Queue rollouts as Agent Lightning's trainer does: rows, and no metadata."""
    names = [f"r{place}" for place in range(len(chosen))]
    body = [
        {
            "rollout_id": name,
            "input": {**as_row(task), "data_id": "d"},
            "metadata": {},
            **fields,
        }
        for name, task in zip(names, chosen, strict=True)
    ]
    api.post("/api/rollouts", json=body).raise_for_status()
    return names


def register(api: httpx.Client, url: str) -> None:
    """Register a server of the policy."""
    body = [{"model": MODEL, "endpoint": url}]
    api.post("/api/models", json=body).raise_for_status()


@contextmanager
def service(
    folder: Path, workers: int = 1, before: Callable[[], Any] = at_once, **settings: Any
) -> Iterator[tuple[GatewayService, httpx.Client]]:
    """Serve a gateway and a client of it, whose policy has one server."""
    folder.mkdir(exist_ok=True)
    config = TrainingConfig.create(**{"framework": "native", **settings})
    where = GatewaySettings(model_name=MODEL, api_key=KEY)
    with (
        model_server(before) as url,
        GatewayService(folder / DATABASE_FILE, where, config, workers) as served,
        httpx.Client(
            base_url=served.gateway.url, headers={"Authorization": f"Bearer {KEY}"}
        ) as api,
    ):
        api.delete("/api/models").raise_for_status()  # those of an earlier trainer
        register(api, url)
        yield served, api
