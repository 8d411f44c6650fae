"""Plays ``vllm serve`` on the CPU: a real policy, whose adapters change its weights.

It stands for vLLM in an environment that tests make: its command is a script that runs
this file. What goes wrong is in the JSON file that FAKE_VLLM names. Every request but
those of models and health is a line of the file FAKE_VLLM_SEEN.
"""

import argparse
import asyncio
import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aiohttp import web

if TYPE_CHECKING:
    from tests.plugins.vllm.fake_weights import FakeWeights

Handler = Any
SUCCESS = "Success: LoRA adapter '{}' {} successfully."


class FakeVllm:
    """What vLLM keeps, and what it answers; weights are read when first asked."""

    def __init__(self, given: argparse.Namespace, script: dict[str, Any]) -> None:
        self.given, self.script = given, script
        self.count: Counter[str] = Counter()
        self.adapters: dict[str, Path] = {}
        self.sleeps = False
        self.switching = asyncio.Lock()
        self.weights: FakeWeights | None = None

    def application(self) -> web.Application:
        @web.middleware
        async def guard(request: web.Request, handler: Handler) -> web.StreamResponse:
            return await self.guarded(request, handler)

        app = web.Application(middlewares=[guard], client_max_size=2**26)
        app.router.add_get("/health", self.health)
        app.router.add_get("/v1/models", self.models)
        app.router.add_post("/v1/load_lora_adapter", self.load)
        app.router.add_post("/v1/unload_lora_adapter", self.unload)
        app.router.add_post("/sleep", self.sleep)
        app.router.add_post("/wake_up", self.wake_up)
        app.router.add_post("/reset_prefix_cache", self.reset)
        app.router.add_post("/v1/completions", self.complete)
        return app

    async def guarded(
        self, request: web.Request, handler: Handler
    ) -> web.StreamResponse:
        """Ask for the key where vLLM does, and do what the script says."""
        path, script = request.path, self.script
        key = f"Bearer {os.environ['VLLM_API_KEY']}"
        if path.startswith("/v1") and request.headers.get("Authorization") != key:
            return web.json_response({"error": "Unauthorized"}, status=401)
        self.count[path] += 1
        if script.get("die at", {}).get(path) == self.count[path]:
            sys.stderr.write("torch.OutOfMemoryError: CUDA out of memory.\n")
            sys.stderr.flush()
            os.kill(os.getpid(), signal.SIGKILL)
        if self.count[path] <= script.get("busy", {}).get(path, 0):
            return web.Response(status=503, text="overloaded")
        if path == script.get("refuses"):
            return error(500, "the worker has failed")
        answered: web.StreamResponse = await handler(request)
        return answered

    async def health(self, _: web.Request) -> web.Response:
        return web.Response()

    async def models(self, _: web.Request) -> web.Response:
        names = [self.given.served_model_name]
        if not self.script.get("forgets adapters"):
            names += self.adapters
        return web.json_response({"object": "list", "data": [{"id": n} for n in names]})

    async def load(self, request: web.Request) -> web.Response:
        body = await request.json()
        name, path = body["lora_name"], Path(body["lora_path"])
        note(call="load", name=name)
        if self.sleeps:
            return error(500, "an illegal memory access was encountered")
        if name in self.adapters:
            return error(400, "The lora adapter has already been loaded.")
        rank = json.loads((path / "adapter_config.json").read_text())["r"]
        if rank > self.given.max_lora_rank:
            return error(500, f"LoRA rank {rank} is greater than max_lora_rank")
        self.adapters[name] = path
        return web.Response(text=SUCCESS.format(name, "added"))

    async def unload(self, request: web.Request) -> web.Response:
        name = (await request.json())["lora_name"]
        note(call="unload", name=name)
        if self.adapters.pop(name, None) is None:
            return error(404, f"The lora adapter '{name}' cannot be found.")
        return web.Response(text=SUCCESS.format(name, "removed"))

    async def sleep(self, request: web.Request) -> web.Response:
        note(call="sleep", level=request.query["level"])
        self.sleeps = True
        return web.json_response({"status": "sleeping"})

    async def wake_up(self, _: web.Request) -> web.Response:
        note(call="wake_up")
        self.sleeps = bool(self.script.get("sleeps on"))
        status = "sleeping" if self.sleeps else "awake"
        return web.json_response({"status": status})

    async def reset(self, _: web.Request) -> web.Response:
        note(call="reset")
        return web.json_response({"success": True})

    async def complete(self, request: web.Request) -> web.StreamResponse:
        body, room = await request.json(), self.given.max_model_len
        name = body["model"]
        note(call="complete", model=name, sleeps=self.sleeps)
        if name != self.given.served_model_name and name not in self.adapters:
            return error(404, f"The model `{name}` does not exist.")
        if self.sleeps:
            return error(500, "the engine sleeps")
        adapter = self.adapters.get(name)
        if self.script.get("ignores adapters"):
            adapter = None
        async with self.switching:
            weights = await asyncio.to_thread(self.awake, adapter)
        used = len(body["prompt"])
        if used > room - body["max_tokens"]:
            return error(
                400,
                f"This model's maximum context length is {room} tokens. However, your "
                f"prompt contains {used} input tokens, which exceeds this limit even "
                "without any output tokens. Please reduce the length of the input "
                f"prompt. (parameter=input_tokens, value={used})",
            )
        choice = await weights.sample(body)
        whole = {"object": "text_completion", "model": name, "choices": [choice]}
        return web.json_response(whole)

    def awake(self, adapter: Path | None) -> "FakeWeights":
        """Return the weights, with those of an adapter."""
        from tests.plugins.vllm.fake_weights import FakeWeights

        if self.weights is None:
            self.weights = FakeWeights(self.given.model)
        self.weights.become(adapter)
        return self.weights


def error(status: int, message: str) -> web.Response:
    told = {"message": message, "type": "Error", "param": None, "code": status}
    return web.json_response({"error": told}, status=status)


def note(**what: Any) -> None:
    with Path(os.environ["FAKE_VLLM_SEEN"]).open("a") as file:
        file.write(json.dumps(what) + "\n")


def arguments() -> argparse.Namespace:
    """Read the flags that training gives; any other one ends it, as vLLM does."""
    parser = argparse.ArgumentParser()
    parser.add_argument("verb", choices=["serve"])
    parser.add_argument("model")
    for flag in ("served-model-name", "host", "dtype"):
        parser.add_argument(f"--{flag}", required=True)
    numbers = ("port", "max-model-len", "max-lora-rank", "max-loras", "seed")
    for flag in numbers:
        parser.add_argument(f"--{flag}", type=int, required=True)
    yes = ("enable-lora", "disable-uvicorn-access-log")
    for flag in yes:
        parser.add_argument(f"--{flag}", action="store_true", required=True)
    parser.add_argument("--logprobs-mode", choices=["processed_logprobs"])
    parser.add_argument("--structured-outputs-config", type=json.loads)
    parser.add_argument("--generation-config", choices=["vllm"])
    parser.add_argument("--enable-sleep-mode", action="store_true")
    parser.add_argument("--gpu-memory-utilization", type=float)
    parser.add_argument("--tensor-parallel-size", type=int)
    for flag in ("enforce-eager", "no-enable-chunked-prefill"):  # on a CPU
        parser.add_argument(f"--{flag}", action="store_true")
    parser.add_argument("--max-num-batched-tokens", type=int)
    return parser.parse_args()


def main() -> None:
    given = arguments()
    assert os.environ["VLLM_ALLOW_RUNTIME_LORA_UPDATING"] == "1"
    assert os.environ["VLLM_SERVER_DEV_MODE"] == "1"
    path = Path(os.environ["FAKE_VLLM"])
    script = json.loads(path.read_text()) if path.exists() else {}
    note(
        call="start",
        devices=os.environ.get("CUDA_VISIBLE_DEVICES"),
        share=given.gpu_memory_utilization,
        length=given.max_model_len,
    )
    if why := script.get("does not start"):
        sys.exit(why)
    if script.get("children"):  # one of them in a session of its own
        os.system("sleep 600 & setsid sleep 600 &")
    app = FakeVllm(given, script).application()
    web.run_app(app, host=given.host, port=given.port, print=None)


if __name__ == "__main__":
    main()
