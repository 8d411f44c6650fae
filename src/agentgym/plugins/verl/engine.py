"""VerlEngine: verl's workers update the weights, and its servers answer requests."""

import json
import math
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

import httpx
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
from agentgym.errors import CheckpointError, EngineError, UsageError
from agentgym.models.chat_template import ChatTemplate
from agentgym.models.folder import model_source
from agentgym.models.template import template_of
from agentgym.plugins.verl.group import VerlSettings
from agentgym.plugins.verl.launch import LocalServer
from agentgym.plugins.verl.protocol import KEY_VARIABLE, PROTOCOL, rows_of
from agentgym.plugins.verl.settings import (
    CHAT_TEMPLATE,
    TOOL_PARSER,
    imitation_rate,
    learning_rate,
    trained_rank,
    verl_settings,
)
from agentgym.plugins.vllm.group import GpuSettings

_SILENT_S = 60.0
_BUSY_TRIES = 30
_BUSY_S = 2.0
_STARTING_S = 1800.0


class VerlClient:
    """A client of verl's server at ``host:port``."""

    def __init__(self, address: str, key: str, *, busy_s: float = _BUSY_S) -> None:
        self.address = address
        self._busy_s = busy_s
        self._http = httpx.Client(
            base_url=f"http://{address}",
            headers={"Authorization": f"Bearer {key}"},
            timeout=httpx.Timeout(None, connect=10.0),
            trust_env=False,
        )
        self._heard = threading.Condition()
        self._state: dict[str, Any] = {}
        self._lost, self._status = "", 0
        self._closed = threading.Event()

    def start(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Start verl, and wait until its inference servers answer."""
        body = {"protocol": PROTOCOL, "settings": dict(settings)}
        threading.Thread(
            target=self._hold, args=(body,), name="agentgym-verl", daemon=True
        ).start()
        with self._heard:
            self._heard.wait_for(lambda: bool(self._state or self._lost), _STARTING_S)
            if self._lost:
                raise self._error()
            if not self._state:
                raise EngineError(
                    f"verl at {self.address} has not started within "
                    f"{_STARTING_S / 60:.0f} minutes."
                )
            return self._state

    def ask(self, verb: str, **given: Any) -> Any:
        """Call a method of :class:`Cluster`, e.g. ``update``, and return its result."""
        for _ in range(_BUSY_TRIES):
            if self._lost:
                raise self._error()
            try:
                answer = self._http.post(f"/{verb}", json=given)
                received = answer.json()
            except (httpx.HTTPError, ValueError, RuntimeError) as error:
                with self._heard:  # the thread of _hold may get the reason
                    self._heard.wait_for(lambda: bool(self._lost), 3.0)
                if self._lost:
                    raise self._error() from None
                raise EngineError(
                    f"verl's server at {self.address} did not answer /{verb} "
                    f"({type(error).__name__}: {error})."
                ) from None
            if answer.status_code == 200:
                return received
            if answer.status_code != 503:
                raise EngineError(self._refused(answer.status_code, received, verb))
            self._closed.wait(self._busy_s)
        raise EngineError(
            f"verl's server at {self.address} is overloaded: /{verb} was refused "
            f"{_BUSY_TRIES} times. Is another run using it?"
        )

    def close(self) -> None:
        """Close the connection; the server then ends verl."""
        self._closed.set()
        self._http.close()

    def _hold(self, body: dict[str, Any]) -> None:
        """Send ``body`` to ``/start``, and read the answer until verl ends.

        Each line of the answer has verl's state. The server sends lines as long as verl
        runs, and ends verl when this connection is closed.
        """
        why = "closed the connection"
        try:
            timeout = httpx.Timeout(_SILENT_S, connect=10.0)
            with self._http.stream(
                "POST", "/start", json=body, timeout=timeout
            ) as answer:
                if answer.status_code != 200:
                    received = json.loads(answer.read())
                    why = self._refused(answer.status_code, received, "start")
                    self._lose(why, refused=answer.status_code)
                    return
                for line in answer.iter_lines():
                    if self._closed.is_set():
                        return
                    state = json.loads(line)
                    if state["state"] == "failed":
                        self._lose(f"verl has failed: {state['error']}")
                        return
                    if state["state"] == "ready":
                        with self._heard:
                            self._state = state
                            self._heard.notify_all()
        except httpx.ReadTimeout:
            why = f"has been silent for {_SILENT_S:.0f} seconds"
        except httpx.ConnectError as error:
            why = f"does not answer ({error})"
        except (httpx.HTTPError, ValueError, KeyError, RuntimeError) as error:
            why = f"was lost ({type(error).__name__}: {error})"
        if not self._closed.is_set():
            self._lose(f"verl's server at {self.address} {why}.")

    def _lose(self, why: str, refused: int = 0) -> None:
        with self._heard:
            self._lost, self._status = why, refused
            self._heard.notify_all()

    def _error(self) -> EngineError | UsageError:
        if self._status in (400, 401, 404, 409):
            return UsageError(self._lost)
        return EngineError(self._lost)

    def _refused(self, status: int, received: Any, verb: str) -> str:
        why = (
            received.get("error", received) if isinstance(received, dict) else received
        )
        return f"verl's server at {self.address} refuses /{verb} ({status}): {why}."


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

    def __init__(
        self, config: TrainingConfig, client: VerlClient, server: LocalServer | None
    ) -> None:
        self._config = config
        self._client = client
        self._server = server
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
        state = client.start(settings)
        self._policy = ServedPolicy(
            state["model"],
            list(state["servers"]),
            template_variables=template.variables,
        )

    @classmethod
    def create(cls, config: TrainingConfig) -> Self:
        """Start verl, locally or at ``verl.server``, and wait until it answers."""
        with ExitStack() as stack:
            server, address = None, VerlSettings.of(config).server
            if address is None:
                server = LocalServer(log_file(config))
                stack.callback(server.close)
                client = VerlClient(server.address, server.key)
            else:
                key = os.environ.get(KEY_VARIABLE, "")
                client = VerlClient(address, key)
            stack.callback(client.close)
            try:
                engine = cls(config, client, server)
            except EngineError as error:
                if server is not None:
                    error.add_note(f"The whole log is in {server.log}.")
                raise
            stack.pop_all()
        return engine

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
            self._ask("refresh", version=self._step)
            self._is_stale = False
        yield

    def imitation(self) -> VerlImitation:
        """Return the warm start's trainer; nano's later updates use a lower rate."""
        self._is_warmed = True

        def ask(verb: str, **given: Any) -> Any:
            self._is_stale = True
            return self._ask(verb, **given)

        return VerlImitation(ask, self._tokens, imitation_rate(self._config))

    def update(self, batch: TrainingBatch) -> UpdateMetrics:
        """Do one on-policy update in verl's workers; verl's servers sleep during it."""
        peak = learning_rate(self._config, is_warmed=self._is_warmed)
        rate = scheduled_rate(peak, self._step, batch.spent)
        done = self._ask(
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

        Each of verl's processes writes its own files. If verl runs on another machine,
        that machine must share the folder.
        """
        place = folder / _WEIGHTS
        place.mkdir()
        written = self._ask("save", folder=str(place.absolute()))
        missing = [name for name in written if not (place / name).exists()]
        if missing or not written:
            raise EngineError(
                f"verl wrote its checkpoint to {place.absolute()} on its machine, and "
                "it is not seen here. Put --output on a folder that both machines "
                "share."
            )
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
        self._ask("load", folder=str(place.absolute()), version=step)
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
        self._ask("export", folder=str(folder.absolute()))
        if not folder.is_dir():
            raise EngineError(
                f"verl wrote the model to {folder.absolute()} on its machine, and it "
                "is not seen here. Put --output on a folder that both machines share."
            )
        self._tokenizer.save_pretrained(folder)

    def close(self) -> None:
        """End verl and its servers."""
        self._client.close()
        if self._server is not None:
            self._server.close()

    def _ask(self, verb: str, **given: Any) -> Any:
        try:
            return self._client.ask(verb, **given)
        except EngineError as error:
            if self._server is not None:
                error.add_note(f"The whole log is in {self._server.log}.")
            raise
