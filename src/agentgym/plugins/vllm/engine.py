"""VllmEngine: this process trains an adapter, and vLLM samples with it."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator
from contextlib import ExitStack, aclosing, contextmanager, suppress
from pathlib import Path
from shutil import rmtree
from typing import Any, NamedTuple, Self

import aiohttp
import orjson
import torch
from safetensors.torch import load_file, save_file

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
    ServerAttempts,
    failure_message,
    overflow_message,
)
from agentgym.models.links import limited, read_answer
from agentgym.models.servers import Replicas
from agentgym.plugins.vllm.server import VllmServer
from agentgym.plugins.vllm.settings import (
    BASE,
    learner_precision,
    on_cpu,
    shares_gpu,
    trained_rank,
)
from agentgym.security.redaction import get_logger

_PATH = "completions"
_SHOWN = 300


class _Asked(NamedTuple):
    """A request for vLLM, and the data to convert its answer.

    Attributes:
        prompt: The rendered prompt.
        body: The body of the HTTP request.
        version: Version of the weights when the request was made.
        grammar: The grammar that restricts the answer; None without one.
    """

    prompt: Prompt
    body: dict[str, Any]
    version: int
    grammar: Grammar | None


class VllmPolicy(Policy):
    """A policy that sends token ids to vLLM, and gets token ids back.

    This process itself renders the messages and parses the tool calls, exactly as for a
    model in this process. ``server`` is vLLM's base URL, e.g.
    ``http://127.0.0.1:8000/v1``.

    Attributes:
        version: Number of updates that the server's weights have had.
        failure: Why vLLM cannot answer any more; empty if it can.
    """

    def __init__(self, tokens: ChatTokens, server: str, key: str, model: str) -> None:
        self._tokens = tokens
        self._url, self._key = server, key
        self._model = model
        self.version = 0
        self.failure = ""
        self._clients: dict[asyncio.AbstractEventLoop, ModelClient] = {}

    @property
    def model_name(self) -> str:
        """Name of the model or adapter on the server."""
        return self._model

    def become(self, model: str, version: int) -> None:
        """Send the next requests to another model or adapter of the server."""
        self._model, self.version = model, version

    async def chat(self, request: ChatRequest) -> ChatResult:
        """Answer one request."""
        asked = self._asked(request)
        replicas = self._replicas()
        attempts = ServerAttempts(self._client(), request.session)
        try:
            async for attempt in attempts:
                async with attempt.at(replicas):
                    response = await attempt.post(_PATH, orjson.dumps(asked.body))
                    data = await read_answer(response)
                    if response.status >= 400:
                        raise _refused(response.status, data)
                    found = _choice(data)
                    result = self._result(request, asked, found)
                    attempt.end()
                    return result
        except (aiohttp.ClientError, TimeoutError) as error:
            raise self._lost(error) from error
        raise EngineError("vLLM gave no answer.")

    async def stream(self, request: ChatRequest) -> AsyncIterator[str | ChatResult]:
        """Yield pieces of the response's text while it is sampled, then the result."""
        asked = self._asked(request)
        content = self._tokens.growing(asked.prompt)
        whole: dict[str, Any] = {"token_ids": [], "logprobs": {"token_logprobs": []}}
        attempts = ServerAttempts(self._client(), request.session)
        try:
            async for attempt in attempts:
                async with attempt.at(self._replicas()):
                    sent = orjson.dumps(asked.body | {"stream": True})
                    response = await attempt.post(_PATH, sent, stream=True)
                    if response.status >= 400:
                        raise _refused(response.status, await read_answer(response))
                    assert isinstance(response, aiohttp.ClientResponse)
                    async with response, aclosing(_events(response)) as events:
                        async for choice in events:
                            attempts.has_begun = True
                            _extend(whole, choice)
                            for token in choice.get("token_ids") or ():
                                if piece := content.add(token):
                                    yield piece
                    attempt.end()
        except (aiohttp.ClientError, TimeoutError) as error:
            raise self._lost(error) from error
        result = self._result(request, asked, whole)
        if rest := (result.content or "")[content.sent :]:
            yield rest
        yield result

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
        return Replicas((self._url,), self._model, self._key)

    def _asked(self, request: ChatRequest) -> _Asked:
        if self.failure:
            raise EngineError(self.failure)
        prompt, room = self._tokens.prompt(request)
        body = {
            "model": self._model,
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
        ids = choice.get("token_ids")
        given = choice.get("logprobs") or {}
        logprobs = given.get("token_logprobs")
        if not ids or not logprobs or len(ids) != len(logprobs):
            raise EngineError(
                "vLLM's answer has no token ids, or not as many log-probabilities. "
                "Give it no --tokens-only and no other version than the one that "
                "`agentgym engine install vllm` makes."
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

    def _lost(self, error: Exception) -> EngineError:
        why = self.failure or failure_message(error)
        return EngineError(f"vLLM at {self._url} did not answer: {why}")


def _choice(data: bytes) -> dict[str, Any]:
    try:
        choice = orjson.loads(data)["choices"][0]
    except (ValueError, LookupError, TypeError) as error:
        shown = data[:_SHOWN].decode(errors="replace")
        raise EngineError(f"vLLM's answer is not a completion: {shown!r}") from error
    if not isinstance(choice, dict):
        raise EngineError(f"vLLM's answer is not a completion: {choice!r:.300}")
    return choice


def _refused(status: int, data: bytes) -> EngineError:
    if overflow := overflow_message(data):
        return ContextLengthError(overflow)
    shown = data[:_SHOWN].decode(errors="replace")
    return EngineError(f"vLLM refused a request (status {status}): {shown}")


async def _events(response: aiohttp.ClientResponse) -> AsyncGenerator[dict[str, Any]]:
    """Yield the parts of a streamed completion (``choices`` in vLLM's events)."""
    held = b""
    async with aclosing(limited(response)) as parts:
        async for part in parts:
            *lines, held = (held + part).split(b"\n")
            for line in lines:
                value = line.removeprefix(b"data:").strip()
                if line.startswith(b"data:") and value != b"[DONE]":
                    said = orjson.loads(value)
                    if said.get("error"):
                        raise EngineError(f"vLLM failed: {said['error']!r:.300}")
                    for choice in said.get("choices") or ():
                        yield choice


def _extend(whole: dict[str, Any], choice: dict[str, Any]) -> None:
    """Add a part of a streamed completion to ``whole``, the parts so far."""
    whole["token_ids"] += choice.get("token_ids") or []
    logprobs = (choice.get("logprobs") or {}).get("token_logprobs")
    whole["logprobs"]["token_logprobs"] += logprobs or []
    whole["finish_reason"] = choice.get("finish_reason") or whole.get("finish_reason")


NAME = f"{BASE}-proof"
_WEIGHTS = "adapter_model.safetensors"
_SCALE = 0.1
_PROMPT = [40, 41, 42, 43]
"""Token ids that every vocabulary has; their text does not matter."""
_TOKENS = 8
_ROUNDING = 0.05
"""Log-probabilities may differ by this many nats with equal weights, due to caching."""


def check_adapters_are_used(server: VllmServer, folder: Path) -> None:
    """Check that vLLM answers differently with an adapter of large random weights.

    The trained adapter cannot be used for this check, since a server in bfloat16 rounds
    away the small changes of the first updates. ``folder`` has a copy of the trained
    adapter. Its weights are replaced by random ones; after the check it is removed.
    """
    weights = load_file(folder / _WEIGHTS)
    noise = torch.Generator().manual_seed(0)
    for name, tensor in weights.items():
        if ".lora_B." in name:
            drawn = torch.randn(tensor.shape, generator=noise)
            weights[name] = (_SCALE * drawn).to(tensor.dtype)
    save_file(weights, folder / _WEIGHTS)
    given = {"lora_name": NAME, "lora_path": str(folder)}
    server.ask("POST", "/v1/load_lora_adapter", json=given)
    answers = [_answer(server, name) for name in (BASE, NAME)]
    server.ask("POST", "/v1/unload_lora_adapter", json={"lora_name": NAME})
    rmtree(folder, ignore_errors=True)
    (bare, bare_logprobs), (adapted, logprobs) = answers
    gaps = [abs(a - b) for a, b in zip(bare_logprobs, logprobs, strict=False)]
    if bare == adapted and max(gaps, default=0.0) < _ROUNDING:
        raise EngineError(
            "vLLM answers the same with an adapter as without: it takes adapters and "
            "does not use them, so that nothing it samples would come from the trained "
            f"weights. Leave out vllm flags that this may be due to; its log is "
            f"{server.log}."
        )


def _answer(server: VllmServer, model: str) -> tuple[list[int], list[float]]:
    """Sample a short answer with a fixed seed; return ids and log-probabilities."""
    asked: dict[str, Any] = {
        "model": model,
        "prompt": _PROMPT,
        "max_tokens": _TOKENS,
        "temperature": 1.0,
        "seed": 0,
        "logprobs": 0,
        "return_token_ids": True,
        "skip_special_tokens": False,
    }
    completion = server.ask("POST", "/v1/completions", json=asked)
    try:
        choice = completion["choices"][0]
        return list(choice["token_ids"]), list(choice["logprobs"]["token_logprobs"])
    except (KeyError, IndexError, TypeError):
        raise EngineError(
            f"vLLM gives no log-probabilities: {completion!r:.200}."
        ) from None


logger = get_logger(__name__)

_RESETS = 5


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
        self._names: set[str] = set()
        self._loaded_name = ""
        self._is_stale = True
        self._is_proven = False
        self._policy = VllmPolicy(
            self._tokens, f"{server.address}/v1", server.key, BASE
        )
        server.on_end(self._lose)

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

    def _lose(self, why: str) -> None:
        self._policy.failure = why

    def _wake(self) -> None:
        if torch.cuda.is_available():
            torch.cuda.empty_cache()  # vLLM needs this memory for its KV cache
        reply = self._server.ask("POST", "/wake_up")
        if not isinstance(reply, dict) or reply.get("status") != "awake":
            raise EngineError(f"vLLM does not wake up: it says {reply!r:.200}.")

    def _prove(self) -> None:
        """Check that vLLM samples with the adapters that it loads."""
        folder = self._adapters / NAME
        self._learner.write_weights(folder)
        check_adapters_are_used(self._server, folder)
        self._is_proven = True

    def _send(self) -> None:
        """Load the adapter into vLLM under a new name, and unload the old adapter.

        With a new name, vLLM cannot use prefixes that it cached with old weights.
        """
        step = self._learner.step
        name, again = f"{BASE}-v{step}", 1
        while name in self._names:
            again += 1
            name = f"{BASE}-v{step}-{again}"
        self._names.add(name)
        folder = self._adapters / name
        self._learner.write_weights(folder)
        given = {"lora_name": name, "lora_path": str(folder)}
        self._server.ask("POST", "/v1/load_lora_adapter", json=given)
        if name not in self._server.models():
            raise EngineError(
                f"vLLM was given the adapter {name!r} and does not have it: it would "
                f"go on with old weights. Its log is {self._server.log}."
            )
        if self._loaded_name:
            old = {"lora_name": self._loaded_name}
            self._server.ask("POST", "/v1/unload_lora_adapter", json=old)
            rmtree(self._adapters / self._loaded_name, ignore_errors=True)
        self._loaded_name = name
        self._forget_prefixes()
        self._policy.become(name, step)
        self._is_stale = False

    def _forget_prefixes(self) -> None:
        for _ in range(_RESETS):
            reply = self._server.ask("POST", "/reset_prefix_cache")
            if isinstance(reply, dict) and reply.get("success"):
                return
        # Harmless: the new adapter name matches no cached prefix.
        logger.warning("vLLM did not forget its cached prefixes: %r", reply)


def _sleep(server: VllmServer) -> None:
    """Let vLLM free its GPU memory and move its weights to CPU memory (level 1)."""
    server.ask("POST", "/sleep", params={"level": 1})
