"""A toy adapter and two toy engines: all that the public contracts ask of each."""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from agentgym.core.agent import Trained
from agentgym.core.components import Component, Components
from agentgym.core.config import TrainingConfig
from agentgym.core.policy import ChatRequest, ChatResult, Policy, ServedPolicy
from agentgym.core.trajectory import ModelCall
from agentgym.engines.base import (
    Engine,
    EngineFactory,
    EngineSummary,
    TrainingBatch,
    UpdateMetrics,
)
from agentgym.integrations.base import (
    AgentLoop,
    Blueprint,
    Conversation,
    FrameworkAdapter,
)
from agentgym.integrations.transport import PLACEHOLDER, episode_client, speaking_as

ANSWER = "Done."
IDS = [*ANSWER.encode(), 0]


class ToyAdapter(FrameworkAdapter):
    name = "toy"

    def check(self) -> None: ...

    def create_environment(self, blueprint: Blueprint) -> AgentLoop:
        return ToyLoop(blueprint)

    def wrap_agent(self, trained: Trained, **options: Any) -> Any:
        return trained.spec.system_prompt


class ToyLoop(AgentLoop, Conversation):
    def __init__(self, blueprint: Blueprint) -> None:
        self.key = {"Authorization": f"Bearer {blueprint.api_key}"}
        self.url = f"{blueprint.gateway}{PLACEHOLDER}/chat/completions"
        self.client = episode_client(blueprint)

    def converse(self) -> Conversation:
        return self

    async def turn(self, message: str) -> str:
        asked = {"messages": [{"role": "user", "content": message}]}
        with speaking_as("parrot"):
            said = await self.client.post(self.url, json=asked, headers=self.key)
        return str(said.json()["choices"][0]["message"]["content"])


class ToyPolicy(Policy):
    model_name = "toy"

    async def chat(self, request: ChatRequest) -> ChatResult:
        return ChatResult([1, 2], IDS, [-0.5] * len(IDS), ANSWER, [], "stop", 0)


class ToyEngine(Engine):
    """Its policy answers in this process."""

    policy: Policy | ServedPolicy = ToyPolicy()
    step = 0

    def label(self, call: ModelCall) -> list[Components]:
        return [frozenset({Component.TOOL_SELECTION})] * len(call.response_ids)

    def update(self, batch: TrainingBatch) -> UpdateMetrics:
        assert batch.sequences[0].agent == "parrot"
        self.step += 1
        return UpdateMetrics(self.step, loss=float(batch.trained_tokens))

    def save_checkpoint(self, folder: Path) -> None:
        (folder / "step").write_text(str(self.step))

    def load_checkpoint(self, folder: Path) -> None:
        self.step = int((folder / "step").read_text())

    def export(self, folder: Path) -> None:
        folder.mkdir()


class ServedToyEngine(ToyEngine):
    """Its policy is served by another: here a thread with an HTTP server."""

    def __init__(self) -> None:
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), ToyServer)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{self.server.server_port}/v1"
        self.policy = ServedPolicy("toy", [url])

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()


class ToyServer(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        logprobs = {"content": [{"token": "", "logprob": -0.5}] * len(IDS)}
        message = {"role": "assistant", "content": ANSWER}
        choice = {"message": message, "token_ids": IDS, "logprobs": logprobs}
        body = json.dumps({"choices": [choice], "prompt_token_ids": [1, 2]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None: ...


class ToyEngines(EngineFactory):
    kind: type[ToyEngine] = ToyEngine

    def check(self, config: TrainingConfig) -> EngineSummary:
        return EngineSummary("toy", "nothing")

    def create(self, config: TrainingConfig) -> Engine:
        return self.kind()


class ServedToyEngines(ToyEngines):
    kind = ServedToyEngine


class Unfinished(FrameworkAdapter):
    name = "unfinished"


class WrongAdapter(ToyAdapter):
    def create_environment(self, blueprint: Blueprint) -> AgentLoop:
        return "an agent"  # type: ignore[return-value]
