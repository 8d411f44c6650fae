"""VllmEngine: this process trains an adapter, and vLLM samples with it."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from shutil import rmtree
from typing import Self

import torch

from agentgym.core.config import TrainingConfig
from agentgym.core.files import scratch_folder
from agentgym.engines.base import TrainingBatch, UpdateMetrics
from agentgym.engines.device import check_device
from agentgym.engines.learner import Learner, LearnerEngine
from agentgym.engines.local.imitation import LocalImitation
from agentgym.engines.local.loading import load_model
from agentgym.engines.local.model import LoadedModel
from agentgym.engines.vllm.policy import VllmPolicy
from agentgym.engines.vllm.proof import NAME, check_adapters_are_used
from agentgym.engines.vllm.server import VllmServer
from agentgym.engines.vllm.settings import (
    BASE,
    learner_precision,
    on_cpu,
    shares_gpu,
    trained_rank,
)
from agentgym.errors import EngineError
from agentgym.security.redaction import get_logger

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
