"""VllmEngine: this process trains an adapter, and vLLM samples with it."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from operator import sub
from pathlib import Path
from shutil import rmtree
from typing import Any, NamedTuple, Self

import aiohttp
import orjson
import torch
from safetensors.torch import load_file, save_file

from agentgym.core.background import in_background
from agentgym.core.config import TrainingConfig
from agentgym.core.files import scratch_folder
from agentgym.core.policy import ChatRequest, ChatResult, Policy
from agentgym.core.trajectory import Grammar
from agentgym.engines.base import TrainingBatch, UpdateMetrics
from agentgym.engines.device import check_device
from agentgym.engines.learner import Learner, LearnerEngine
from agentgym.engines.local.imitation import LocalImitation
from agentgym.engines.local.loading import load_model
from agentgym.engines.local.model import LoadedModel
from agentgym.engines.tokens.chat_tokens import ChatTokens
from agentgym.engines.tokens.rendering import Prompt
from agentgym.errors import ContextLengthError, EngineError
from agentgym.models.http import (
    ModelClient,
    Replicas,
    ServerAttempts,
    failure_message,
    overflow_message,
)
from agentgym.models.links import read_answer
from agentgym.plugins.vllm.server import VllmServer
from agentgym.plugins.vllm.settings import (
    BASE,
    learner_precision,
    on_cpu,
    shares_gpu,
    trained_rank,
)

_PATH = "completions"
_SHOWN = 300


class _Asked(NamedTuple):
    """A request for vLLM, and the data to convert its answer."""

    prompt: Prompt
    body: dict[str, Any]  # of the HTTP request
    version: int  # of the weights when the request was made
    grammar: Grammar | None  # that restricts the answer


class VllmPolicy(Policy):
    """A policy that sends token ids to vLLM, and gets token ids back.

    This process itself renders the messages and parses the tool calls, exactly as for a
    model in this process.

    Attributes:
        model_name: Name of the model or adapter on the server.
        version: Number of updates that the server's weights have had.
    """

    model_name = BASE

    def __init__(self, tokens: ChatTokens, server: VllmServer) -> None:
        self._tokens = tokens
        self._server = server
        self.version = 0
        self._clients: dict[asyncio.AbstractEventLoop, ModelClient] = {}

    @property
    def failure(self) -> str:
        """Why vLLM cannot answer any more; empty if it can."""
        return self._server.failure

    def become(self, model: str, version: int) -> None:
        """Send the next requests to another model or adapter of the server."""
        self.model_name, self.version = model, version

    async def chat(self, request: ChatRequest) -> ChatResult:
        """Answer one request."""
        asked = self._asked(request)
        attempts = ServerAttempts(self._client(), request.session)
        try:
            async for attempt in attempts:
                async with attempt.at(self._replicas()):
                    response = await attempt.post(_PATH, orjson.dumps(asked.body))
                    data = await read_answer(response)
                    if response.status >= 400:
                        raise _refused(response.status, data)
                    choice = orjson.loads(data)["choices"][0]
                    result = self._result(request, asked, choice)
                    attempt.end()
                    return result
        except (aiohttp.ClientError, TimeoutError) as error:
            why = self.failure or failure_message(error)
            url = self._server.address
            raise EngineError(f"vLLM at {url} did not answer: {why}") from error
        raise EngineError("vLLM gave no answer.")

    def room(self, request: ChatRequest) -> tuple[int, int]:
        """Return a prompt's number of tokens, and the number left in the context."""
        used = self._tokens.count(request)
        return used, self._tokens.context - used

    async def release(self) -> None:
        """Close the connections that the running event loop opened."""
        if client := self._clients.pop(asyncio.get_running_loop(), None):
            await client.close()

    def _client(self) -> ModelClient:
        loop = asyncio.get_running_loop()
        if loop not in self._clients:
            self._clients[loop] = ModelClient(proxies=False)
        return self._clients[loop]

    def _replicas(self) -> Replicas:
        url = f"{self._server.address}/v1"
        return Replicas((url,), self.model_name, self._server.key)

    def _asked(self, request: ChatRequest) -> _Asked:
        if self.failure:
            raise EngineError(self.failure)
        prompt, room = self._tokens.prompt(request)
        body = {
            "model": self.model_name,
            "prompt": prompt.ids,
            "max_tokens": min(request.max_tokens, room),
            "temperature": request.temperature,
            "seed": request.seed % 2**63,
            "stop_token_ids": sorted(self._tokens.stop_ids),
            "logprobs": 0,
            "return_token_ids": True,
            "skip_special_tokens": False,
            "spaces_between_special_tokens": False,
        }
        if request.stop:
            body["stop"] = list(request.stop)
        grammar = self._tokens.grammars.of(request, prompt.end)
        if grammar is not None:
            body["structured_outputs"] = {"grammar": grammar.text}
        return _Asked(prompt, body, self.version, grammar)

    def _result(
        self, request: ChatRequest, asked: _Asked, choice: dict[str, Any]
    ) -> ChatResult:
        ids, logprobs = choice["token_ids"], choice["logprobs"]["token_logprobs"]
        if not ids or len(ids) != len(logprobs):
            raise EngineError(
                f"vLLM returned {len(ids)} token ids, {len(logprobs)} log-probabilities"
            )
        return self._tokens.result(
            request,
            asked.prompt,
            list(ids),
            [float(each) for each in logprobs],
            reason="length" if choice.get("finish_reason") == "length" else "stop",
            version=asked.version,
            grammar=asked.grammar,
        )


def _refused(status: int, data: bytes) -> EngineError:
    if overflow := overflow_message(data):
        return ContextLengthError(overflow)
    shown = data[:_SHOWN].decode(errors="replace")
    return EngineError(f"vLLM refused a request (status {status}): {shown}")


NAME = f"{BASE}-proof"
_PROBE = ChatRequest(
    [{"role": "user", "content": "Hello"}], temperature=1.0, max_tokens=8, seed=0
)
_SCALE = 0.1  # of the random weights
# With equal weights, log-probabilities may differ by so many nats, due to caching.
_ROUNDING = 0.05


class VllmEngine(LearnerEngine):
    """An engine that samples with vLLM and trains in this process.

    If vLLM and the learner share one GPU, vLLM sleeps except in :meth:`sampling`.
    """

    def __init__(
        self,
        config: TrainingConfig,
        server: VllmServer,
        loaded: LoadedModel,
        adapters: Path,
    ) -> None:
        super().__init__(Learner(config, loaded, servers="vLLM"), loaded.chat_tokens())
        self._server = server
        self._loaded = loaded
        self._adapters = adapters
        self._stack = ExitStack()
        self._shares = shares_gpu(config)
        self._sent = Counter[int]()  # how often the weights of each step were sent
        self._loaded_name = ""
        self._is_stale = True
        self._is_proven = False
        self._policy = VllmPolicy(self._tokens, server)

    @classmethod
    def create(cls, config: TrainingConfig) -> Self:
        """Start vLLM, let it sleep if it shares the GPU, then load the model."""
        with ExitStack() as stack:
            adapters = stack.enter_context(scratch_folder("adapters"))
            server = VllmServer.start(config)
            stack.callback(server.close)
            if shares_gpu(config):
                _sleep(server)
            loaded = load_model(
                config.model,
                device="cpu" if on_cpu(config) else check_device(config.gpu),
                rank=trained_rank(config),
                seed=config.seed,
                precision=learner_precision(config),
                recompute=config.gradient_checkpointing,
                template=config.template,
            )
            engine = cls(config, server, loaded, adapters)
            engine._tokens.check_ends(imitates=config.warm_start)
            engine._stack = stack.pop_all()
            return engine

    @property
    def policy(self) -> VllmPolicy:
        """The policy that samples from vLLM with the newest adapter."""
        return self._policy

    @contextmanager
    def sampling(self) -> Iterator[None]:
        """Within the block, keep vLLM awake with the newest weights.

        If vLLM and the learner share one GPU, vLLM sleeps after the block. The first
        call also checks that vLLM samples with the adapters that it loads.
        """
        try:
            if self._shares:
                self._wake()
            if not self._is_proven:
                self._prove()
            if self._is_stale:
                self._send()
            yield
        except BaseException:
            if self._shares:
                with suppress(EngineError):  # report the first error
                    _sleep(self._server)
            raise
        if self._shares:
            _sleep(self._server)

    def update(self, batch: TrainingBatch) -> UpdateMetrics:
        """Do one on-policy update; the next :meth:`sampling` sends vLLM the weights."""
        self._is_stale = True
        return self._learner.update(batch)

    def imitation(self) -> LocalImitation:
        """Return the warm start's trainer; later updates use a lower learning rate."""
        self._learner.is_warmed = True

        def alone(work: Callable[[], float]) -> float:
            self._is_stale = True
            return work()

        return LocalImitation(self._loaded, self._tokens, alone)

    def load_checkpoint(self, folder: Path) -> None:
        """Load a checkpoint; if a part of it cannot be read, change nothing."""
        self._learner.load(folder)
        self._is_stale = True

    def close(self) -> None:
        """Stop vLLM, and remove the adapters' folder."""
        self._stack.close()

    def _wake(self) -> None:
        if torch.cuda.is_available():
            torch.cuda.empty_cache()  # vLLM needs this memory for its KV cache
        reply = self._server.ask("POST", "/wake_up")
        if not isinstance(reply, dict) or reply.get("status") != "awake":
            raise EngineError(f"vLLM does not wake up: it says {reply!r:.200}.")

    def _prove(self) -> None:
        """Check that vLLM answers differently with an adapter of large random weights.

        The trained adapter cannot be used for this check, since a server in bfloat16
        rounds away the small changes of the first updates.
        """
        folder = self._adapters / NAME
        self._learner.write_weights(folder)
        _randomize(folder / "adapter_model.safetensors")
        self._load(NAME)
        bare, adapted = (in_background(self._probe(name)) for name in (BASE, NAME))
        self._unload(NAME)
        gaps = map(abs, map(sub, bare.logprobs, adapted.logprobs))
        if bare.response_ids == adapted.response_ids and max(gaps) < _ROUNDING:
            raise EngineError(
                "vLLM answers the same with an adapter as without: it takes adapters "
                "and does not use them, so that nothing it samples would come from the "
                "trained weights. Leave out vllm flags that this may be due to; its "
                f"log is {self._server.log}."
            )
        self._is_proven = True

    async def _probe(self, name: str) -> ChatResult:
        self._policy.become(name, 0)
        try:
            return await self._policy.chat(_PROBE)
        finally:
            await self._policy.release()

    def _send(self) -> None:
        """Load the adapter into vLLM under a new name, and unload the old adapter.

        With a new name, vLLM cannot use prefixes that it cached with old weights.
        """
        step = self._learner.step
        self._sent[step] += 1
        again = f"-{self._sent[step]}" if self._sent[step] > 1 else ""
        name = f"{BASE}-v{step}{again}"
        self._learner.write_weights(self._adapters / name)
        self._load(name)
        if name not in self._server.models():
            raise EngineError(
                f"vLLM was given the adapter {name!r} and does not have it: it would "
                f"go on with old weights. Its log is {self._server.log}."
            )
        if self._loaded_name:
            self._unload(self._loaded_name)
        self._loaded_name = name
        self._server.ask("POST", "/reset_prefix_cache")
        self._policy.become(name, step)
        self._is_stale = False

    def _load(self, name: str) -> None:
        given = {"lora_name": name, "lora_path": str(self._adapters / name)}
        self._server.ask("POST", "/v1/load_lora_adapter", json=given)

    def _unload(self, name: str) -> None:
        self._server.ask("POST", "/v1/unload_lora_adapter", json={"lora_name": name})
        rmtree(self._adapters / name, ignore_errors=True)


def _randomize(file: Path) -> None:
    """Replace one of the two matrices of each layer's adapter by random numbers."""
    weights = load_file(file)
    noise = torch.Generator().manual_seed(0)
    for name, tensor in weights.items():
        if ".lora_B." in name:
            drawn = torch.randn(tensor.shape, generator=noise)
            weights[name] = (_SCALE * drawn).to(tensor.dtype)
    save_file(weights, file)


def _sleep(server: VllmServer) -> None:
    """Let vLLM free its GPU memory and move its weights to CPU memory (level 1)."""
    server.ask("POST", "/sleep", params={"level": 1})
