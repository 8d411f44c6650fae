"""VerlEngine: verl's workers update the weights, and its servers answer requests."""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from transformers import AutoTokenizer

from agentgym.core.components import Components
from agentgym.core.config import TrainingConfig
from agentgym.core.files import sync_folder
from agentgym.core.ledger import NOT_FINITE
from agentgym.core.policy import ChatRequest, ChatResult, ServedPolicy
from agentgym.core.trajectory import ModelCall, RequestedCall
from agentgym.engines.base import (
    Engine,
    Imitation,
    TrainingBatch,
    UpdateMetrics,
    check_gap,
    scheduled_rate,
)
from agentgym.engines.checkpoint import check_model, read_manifest, write_manifest
from agentgym.engines.settings import context_length, log_file
from agentgym.engines.tokens.chat_tokens import ChatTokens
from agentgym.errors import CheckpointError, EngineError
from agentgym.models.chat_template import ChatTemplate
from agentgym.models.folder import model_source
from agentgym.models.template import template_of
from agentgym.plugins.verl.group import VerlSettings
from agentgym.plugins.verl.launch import VerlDriver
from agentgym.plugins.verl.rows import rows_of
from agentgym.plugins.verl.settings import (
    CHAT_TEMPLATE,
    TOOL_PARSER,
    learning_rate,
    rates,
    trained_rank,
    verl_settings,
)
from agentgym.plugins.vllm.group import GpuSettings

_WEIGHTS = "verl"
_BY_TOKEN = ("learned", "entropies", "moved")


class VerlImitation(Imitation):
    """Fine-tunes in verl's workers. The optimizer is reset before later updates."""

    def __init__(
        self, ask: Callable[..., Any], tokens: ChatTokens, rate: float
    ) -> None:
        self._ask = ask
        self._tokens = tokens
        self._rate = rate

    def write(
        self, request: ChatRequest, content: str, calls: Sequence[RequestedCall]
    ) -> ChatResult:
        """Convert a given answer to tokens with the chat template."""
        return self._tokens.written(request, content, calls)

    def learn(self, batch: TrainingBatch, share: float) -> float:
        """Do one optimizer step, and return the loss before it."""
        done = self._ask("imitate", rows=rows_of(batch), rate=share * self._rate)
        return float(done["loss"]) if math.isfinite(done["grad_norm"]) else math.nan

    def measure(self, batch: TrainingBatch) -> float:
        """Return the mean loss per trained token, in nats, without an update."""
        return float(self._ask("measure", rows=rows_of(batch))["loss"])


class VerlEngine(Engine):
    """An engine that trains and samples with verl."""

    def __init__(self, config: TrainingConfig, driver: VerlDriver) -> None:
        self._config = config
        self._driver = driver
        self._step = 0
        self._is_warmed = config.warm_start
        self._is_stale = False
        settings = verl_settings(config)
        self._tokenizer = AutoTokenizer.from_pretrained(
            settings["actor_rollout_ref.model.path"]
        )
        used = template_of(model_source(config.model), config.template)
        if used.chat_template:
            self._tokenizer.chat_template = used.chat_template
            settings[CHAT_TEMPLATE] = used.chat_template
        template = ChatTemplate(config.model, self._tokenizer, used)
        settings[TOOL_PARSER] = template.format.vllm_parser
        ends = frozenset({int(self._tokenizer.eos_token_id)})
        self._tokens = ChatTokens(
            config.model, self._tokenizer, template, ends, context_length(config)
        )
        self._tokens.check_ends(imitates=config.warm_start)
        state = driver.start(settings)
        self._policy = ServedPolicy(
            state["model"],
            list(state["servers"]),
            template_variables=template.variables,
        )

    @classmethod
    def create(cls, config: TrainingConfig) -> Self:
        """Start verl, and wait until it answers."""
        driver = VerlDriver(log_file(config))
        try:
            return cls(config, driver)
        except BaseException:
            driver.close()
            raise

    @property
    def policy(self) -> ServedPolicy:
        """The policy: addresses of verl's servers, and the version of their weights."""
        return self._policy

    @property
    def step(self) -> int:
        """Number of updates so far."""
        return self._step

    def label(self, call: ModelCall) -> list[Components] | None:
        """Return each token's components (e.g. tool selection); None if unknown."""
        return self._tokens.label(call)

    @contextmanager
    def sampling(self) -> Iterator[None]:
        """Before the block, send the servers the weights of a warm start.

        This is done once after the warm start; :meth:`update` sends weights itself.
        """
        if self._is_stale:
            self._driver.ask("refresh", version=self._step)
            self._is_stale = False
        yield

    def imitation(self) -> VerlImitation:
        """Return the warm start's trainer; nano's later updates use a lower rate."""
        self._is_warmed = True

        def ask(verb: str, **given: Any) -> Any:
            self._is_stale = True
            return self._driver.ask(verb, **given)

        return VerlImitation(ask, self._tokens, rates(self._config)[1])

    def update(self, batch: TrainingBatch) -> UpdateMetrics:
        """Do one on-policy update in verl's workers; verl's servers sleep during it."""
        peak = learning_rate(self._config, is_warmed=self._is_warmed)
        rate = scheduled_rate(peak, self._step, batch.spent)
        done = self._driver.ask(
            "update",
            rows=rows_of(batch),
            version=self._step + 1,
            rate=rate,
            temperature=self._config.temperature,
        )
        gap = done.get("gap", 0.0)
        check_gap(gap, "verl")
        self._step += 1
        self._policy.version = self._step
        norm = float(done.get("grad_norm", 0.0))
        size = len(batch.sequences)
        learned, entropies, moved = (
            [*found, *[()] * (size - len(found))]  # verl measures only the first rows
            for found in map(done.get, _BY_TOKEN, [()] * len(_BY_TOKEN))
        )
        return UpdateMetrics(
            step=self._step,
            loss=done.get("loss", 0.0),
            grad_norm=norm,
            entropy=done.get("entropy", 0.0),
            clip_fraction=done.get("clip_fraction", 0.0),
            kl=done.get("kl", 0.0),
            logprob_gap=gap,
            reference_kl=done.get("reference_kl"),
            learned=learned,
            entropies=entropies,
            moved=moved,
            refused="" if math.isfinite(norm) else NOT_FINITE,
        )

    def save_checkpoint(self, folder: Path) -> None:
        """Let verl write weights, optimizer and random state; write a manifest last.

        Each of verl's processes writes its own files.
        """
        place = folder / _WEIGHTS
        place.mkdir()
        self._driver.ask("save", folder=str(place.absolute()))
        _check_written(place)
        sizes = {
            path.relative_to(place).as_posix(): path.stat().st_size
            for path in sorted(place.rglob("*"))
            if path.is_file()
        }
        sync_folder(place)
        identity = self._identity()
        write_manifest(folder, self._step, identity, engine="verl", bytes=sizes)

    def load_checkpoint(self, folder: Path) -> None:
        """Load a checkpoint; if one of its files is incomplete, change nothing."""
        manifest = read_manifest(folder, "bytes", engine="verl")
        check_model(folder, manifest, self._identity())
        place = folder / _WEIGHTS
        for name, size in manifest["bytes"].items():
            path = place / name
            found = path.stat().st_size if path.is_file() else 0
            if found != size:
                raise CheckpointError(
                    f"{path} is corrupt: it has {found:,} bytes and not {size:,}. "
                    f"Remove the checkpoint {folder} to continue from the one before."
                )
        step = int(manifest["step"])
        self._driver.ask("load", folder=str(place.absolute()), version=step)
        self._is_stale = False
        self._step = self._policy.version = step

    def _identity(self) -> dict[str, Any]:
        """Return the settings that must be the same when a checkpoint is loaded.

        The number of GPUs is included, since a checkpoint has one file per process.
        """
        config = self._config
        return {
            "name": config.model,
            "rank": trained_rank(config),
            "gpus_per_node": GpuSettings.of(config).per_node,
            "nodes": VerlSettings.of(config).nodes,
        }

    def export(self, folder: Path) -> None:
        """Let verl write the model or adapter into ``folder``; write the tokenizer."""
        self._driver.ask("export", folder=str(folder.absolute()))
        _check_written(folder)
        self._tokenizer.save_pretrained(folder)

    def close(self) -> None:
        """End verl and its servers."""
        self._driver.close()


def _check_written(folder: Path) -> None:
    """Raise EngineError if verl wrote ``folder`` on another machine of its cluster."""
    if not folder.is_dir() or not any(folder.iterdir()):
        raise EngineError(
            f"verl wrote {folder.absolute()} on another machine, and it is not seen "
            "here. Put --output on a folder that all machines of the cluster share."
        )
