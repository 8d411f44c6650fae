"""LightningEngine: Agent Lightning's trainer updates the weights and serves them."""

import json
import os
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agentgym.core.components import Components
from agentgym.core.config import TrainingConfig
from agentgym.core.files import BEAT_S, Beat, no_beat, write_json
from agentgym.core.ledger import NO_VARIANCE, TRAINED, Bucket
from agentgym.core.policy import RegisteredPolicy
from agentgym.core.trajectory import ModelCall, RolloutStatus, Trajectory
from agentgym.engines.base import (
    Engine,
    OwnCredit,
    TrainedToken,
    TrainingBatch,
    TrainingSequence,
    UpdateMetrics,
)
from agentgym.engines.checkpoint import (
    MANIFEST,
    check_model,
    read_manifest,
    write_manifest,
)
from agentgym.engines.settings import log_file
from agentgym.errors import CheckpointError, EngineError
from agentgym.plugins.lightning.settings import (
    ENVIRONMENT,
    FILL_VALUE,
    lightning_settings,
    row_limit,
    started_at,
)
from agentgym.plugins.lightning.train import KEY_VARIABLE
from agentgym.plugins.verl.launch import RayProcess
from agentgym.plugins.vllm.group import GpuSettings

FOLDER = "LIGHTNING_FOLDER"  # variable with the folder for the files of hooks.py
_TURN_S = 0.1
_LAST_LINES = 12


class TrainerProcess(RayProcess):
    """The process of Agent Lightning's trainer, for one run."""

    def __init__(
        self, settings: dict[str, Any], tasks: int, key: str, log: Path
    ) -> None:
        python = ENVIRONMENT.interpreter()
        super().__init__(log)
        self._said = ""
        self.tell("request.json", {"settings": settings, "tasks": tasks})
        self._start_module(
            python,
            "agentgym.plugins.lightning.train",
            str(self._folder / "request.json"),
            # The trainer prints its whole configuration, with the gateway's key.
            secrets={"gateway key": key},
            variables={
                FOLDER: str(self._folder),
                "RAY_TMPDIR": str(self._folder / "r"),
                KEY_VARIABLE: key,
            },
        )

    @property
    def failure(self) -> str:
        """Why the process ended, with the end of its log; empty while it runs."""
        code = self._process.poll()
        if code is None:
            return ""
        if not self._said:
            self._said = (
                f"Agent Lightning's trainer ended ({code}): {self._last_words()} "
                f"The whole log is in {self.log}."
            )
        return self._said

    def _last_words(self) -> str:
        """Return the trainer's message about bad settings, or its log's last lines."""
        lines = [line for line in self._log_text().splitlines() if line.strip()]
        ours = [line for line in lines if line.startswith("agentgym: ")]
        if ours:
            return ours[-1].removeprefix("agentgym: ")
        return "\n".join(["", *lines[-_LAST_LINES:], ""]) or "it wrote nothing."

    def tell(self, name: str, value: Any) -> None:
        """Write ``value`` to the JSON file ``name``, for which the trainer waits."""
        write_json(self._folder / name, value)

    def read(self, name: str) -> Any:
        """Return the content of the trainer's file ``name``; None if missing."""
        path = self._folder / name
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None

    def wait_for(self, name: str, beat: Beat) -> None:
        """Wait until the trainer has written the file ``name``."""
        beaten = time.monotonic()
        while not (self._folder / name).exists():
            if failure := self.failure:
                raise EngineError(failure)
            time.sleep(_TURN_S)
            if time.monotonic() > beaten + BEAT_S:
                beat(None)
                beaten = time.monotonic()


LEFT_OUT = "its row was beyond a multiple of the mini-batch"
REPEATED = "its prompt was asked again, and the last answer counts"
TOO_LONG_PROMPT = "its prompt is longer than a row"
NO_TOKENS = "no token ids were recorded"


@dataclass
class _Row:
    """One row of a batch: consecutive model calls of a rollout, and their tokens."""

    calls: list[ModelCall] = field(default_factory=list)
    ids: list[int] = field(default_factory=list)

    @property
    def prompt(self) -> int:
        """Number of tokens of the first call's prompt."""
        return len(self.calls[0].prompt_ids)


def own_credit(
    rollouts: Sequence[Trajectory],
    rows: Sequence[Mapping[str, Any]],
    limit: int,
    fill_value: float,
) -> OwnCredit:
    """Find out which model calls of a step were trained, and with which tokens."""
    sequences: list[TrainingSequence] = []
    ledger: dict[str, list[Bucket]] = {}
    groups = {
        name: n for n, name in enumerate(dict.fromkeys(r.group for r in rollouts))
    }
    remarks: dict[str, Mapping[str, Any]] = {}
    for rollout in rollouts:
        name = rollout.rollout_id
        trained = [row for row in rows if row["rollout"] == name]
        left = Counter((row["prompt"], row["response"]) for row in trained)
        advantage = trained[0]["advantage"] if trained else 0.0
        buckets = {
            id(call): Bucket("masked", REPEATED if _is_read(call) else NO_TOKENS)
            for call in rollout.model_calls
        }
        merged = _merged(_last_of_each_prompt(rollout.model_calls))
        for row in merged:
            key = row.prompt, min(len(row.ids) - row.prompt, limit)
            bucket = Bucket("masked", LEFT_OUT)
            if row.prompt > limit:
                bucket = Bucket("masked", TOO_LONG_PROMPT)
            elif left[key]:
                left[key] -= 1
                bucket = Bucket("masked", NO_VARIANCE)  # it adds 0 to the loss
                if advantage:
                    bucket = TRAINED
                    group = groups[rollout.group]
                    sequences.append(_sequence(row, group, advantage, limit))
            buckets |= {id(call): bucket for call in row.calls}
        ledger[name] = [buckets[id(call)] for call in rollout.model_calls]
        remarks[name] = {
            "counted": {
                "reward": trained[0]["reward"] if trained else None,
                "crashed": rollout.status is RolloutStatus.DROPPED,
                "filled": fill_value if rollout.reward is None and trained else None,
                "rows": len(merged),
                "trained_rows": len(trained),
            }
        }
    return OwnCredit(sequences, ledger, remarks)


def _is_read(call: ModelCall) -> bool:
    """Return whether Agent Lightning reads a call, as its tokens are recorded."""
    return bool(call.prompt_ids and call.response_ids)


def _last_of_each_prompt(calls: Sequence[ModelCall]) -> list[ModelCall]:
    """Return the model calls that Agent Lightning trains: the last of each prompt."""
    kept: dict[tuple[int, ...], ModelCall] = {}
    for call in filter(_is_read, calls):
        key = tuple(call.prompt_ids)
        kept.pop(key, None)
        kept[key] = call
    return list(kept.values())


def _merged(calls: Sequence[ModelCall]) -> list[_Row]:
    """Merge calls into rows, as Agent Lightning does."""
    rows: list[_Row] = []
    for call in calls:
        if not rows or list(call.prompt_ids[: len(rows[-1].ids)]) != rows[-1].ids:
            rows.append(_Row())
        rows[-1].calls.append(call)
        rows[-1].ids = [*call.prompt_ids, *call.response_ids]
    return rows


def _sequence(row: _Row, group: int, advantage: float, limit: int) -> TrainingSequence:
    """Convert a row to a sequence; keep ``limit`` tokens after the first prompt."""
    end = row.prompt + limit
    trained = [
        TrainedToken(position, logprob, advantage)
        for call in row.calls
        for position, logprob in enumerate(call.logprobs, len(call.prompt_ids))
        if position < end
    ]
    agent = row.calls[0].agent
    return TrainingSequence(agent, group, row.ids[:end], trained, row.calls)


SKIPPED = "too few rows for one mini-batch, so that the trainer skipped the step"
_NAME = "lightning"
_SAVED = "global_step_*"


class LightningEngine(Engine, RegisteredPolicy):
    """An engine that trains with Agent Lightning's trainer, in a process of its own.

    The trainer has its own training loop. A hook (``hooks.py``) stops that loop at the
    beginning of each step, when the trainer's servers have the newest weights. While
    the trainer waits, AgentGym runs rollouts. :meth:`update` lets the trainer go on: it
    reads the step's rollouts from the gateway, updates and saves the policy, sends the
    weights to its servers, and waits again.
    """

    def __init__(self, config: TrainingConfig) -> None:
        self._config = config
        self._settings = lightning_settings(config)
        self.model_name = self._settings["actor_rollout_ref.model.path"]
        self._log = log_file(config)
        self._saved = self._log.with_name(f".{self._log.stem}-saved")
        self._checkpoints = self._log.parent / "checkpoints"
        self._weights: Path | None = None
        self._process: TrainerProcess | None = None
        self._turn = 0
        self._step = 0
        self._gateway: tuple[str, str] | None = None
        self._beat: Beat = no_beat

    @property
    def policy(self) -> RegisteredPolicy:
        """This object: the trainer registers its servers at AgentGym's gateway."""
        return self

    @property
    def step(self) -> int:
        """Number of updates so far."""
        return self._step

    @property
    def failure(self) -> str:
        """Why the trainer's process ended; empty if it runs or has not started."""
        return "" if self._process is None else self._process.failure

    def label(self, call: ModelCall) -> list[Components] | None:
        """Return None: the trainer trains on all response tokens, without labels."""
        return None

    def connect(self, gateway: str, key: str, beat: Beat) -> None:
        """Start the trainer with the gateway's address; wait until its servers run."""
        self._gateway, self._beat = (gateway, key), beat
        self._ready()

    @contextmanager
    def sampling(self) -> Iterator[None]:
        """Before the block, wait until the trainer's servers have the new weights."""
        if self._gateway is not None:  # else connect() will wait
            self._ready()
        yield

    def _ready(self) -> TrainerProcess:
        """Start the trainer if it does not run; return it when it can do a step."""
        if self._gateway is None:
            raise EngineError("The trainer needs a gateway: enter a RolloutSession.")
        if self._process is None:
            url, key = self._gateway
            shutil.rmtree(self._saved, ignore_errors=True)
            settings = started_at(self._settings, url, self._saved, self._weights)
            tasks = self._config.tasks_per_step
            self._process = TrainerProcess(settings, tasks, key, self._log)
            self._turn = 1
        self._process.wait_for(f"ready-{self._turn}", self._beat)
        return self._process

    def update(self, batch: TrainingBatch) -> UpdateMetrics:
        """Let the trainer update the policy with the rollouts of this step."""
        config, names = self._config, [made.rollout_id for made in batch.rollouts]
        if len(names) != (size := config.tasks_per_step * config.group_size):
            raise EngineError(
                f"Agent Lightning's steps have {size} rollouts each, and this one has "
                f"{len(names)}. Give rollouts as a multiple of {size}."
            )
        process, turn = self._ready(), self._turn
        process.tell(f"go-{turn}", names)
        self._turn += 1
        process.wait_for(f"ready-{self._turn}", self._beat)
        found = process.read(f"update-{turn}")
        self._step += 1
        credit = own_credit(
            batch.rollouts,
            found["rows"] if found else [],
            row_limit(config),
            float(self._settings[FILL_VALUE]),
        )
        if found is None:
            return UpdateMetrics(self._step, credit=credit, refused=SKIPPED)
        return UpdateMetrics(self._step, **found["measures"], credit=credit)

    def save_checkpoint(self, folder: Path) -> None:
        """Move the trainer's new checkpoint into ``folder``; write a manifest last.

        If the trainer skipped the update, it has no new checkpoint. Then hard-link the
        files of the previous checkpoint.
        """
        found = _newest(self._saved)
        if found is not None:
            os.replace(found, folder / found.name)
            shutil.rmtree(self._saved, ignore_errors=True)
        elif self._step and (found := self._current(folder.parent)) is not None:
            shutil.copytree(found, folder / found.name, copy_function=os.link)
        weights = "" if found is None else found.name
        identity = self._identity()
        write_manifest(folder, self._step, identity, engine=_NAME, weights=weights)
        self._checkpoints = folder.parent

    def load_checkpoint(self, folder: Path) -> None:
        """End the trainer, so that it starts from the checkpoint in ``folder``.

        The trainer starts again, and loads the weights, before the next rollouts.
        """
        manifest = read_manifest(folder, "weights", engine=_NAME)
        check_model(folder, manifest, self._identity())
        weights = folder / manifest["weights"] if manifest["weights"] else None
        if weights is not None and not weights.is_dir():
            raise CheckpointError(
                f"{weights} is missing. Remove the checkpoint {folder} to continue "
                "from the one before."
            )
        self._end_process()
        self._weights, self._checkpoints = weights, folder.parent
        self._step = int(manifest["step"])

    def _current(self, checkpoints: Path) -> Path | None:
        """Return the trainer's newest checkpoint up to the current step, or None.

        ``checkpoints`` is the folder of the run's checkpoints. Checkpoints of later
        steps, which a resumed run may still have, are ignored.
        """
        for path in sorted(checkpoints.glob(f"step-*/{MANIFEST}"), reverse=True):
            found = read_manifest(path.parent, "weights", engine=_NAME)
            if found["step"] <= self._step and found["weights"]:
                return path.parent / str(found["weights"])
        return None

    def _identity(self) -> dict[str, Any]:
        """Return the settings that must be the same when a checkpoint is loaded.

        The number of GPUs is included, since a checkpoint has one file per GPU.
        """
        return {
            "name": self._config.model,
            "gpus": GpuSettings.of(self._config).per_node,
        }

    def export(self, folder: Path) -> None:
        """Copy model and tokenizer from the newest checkpoint to ``folder``."""
        found = self._current(self._checkpoints)
        model = None if found is None else found / "actor" / "huggingface"
        if model is None or not any(model.glob("*.safetensors")):
            raise EngineError(
                f"{model or self._checkpoints} has no model that could be exported."
            )
        shutil.copytree(model, folder)

    def close(self) -> None:
        """End the trainer and its servers; remove the checkpoints that it saved."""
        self._end_process()
        shutil.rmtree(self._saved, ignore_errors=True)

    def _end_process(self) -> None:
        if self._process is not None:
            self._process.close()
            self._process = None


def _newest(saved: Path) -> Path | None:
    """Return the newest checkpoint in the trainer's folder, or None."""
    return max(
        saved.glob(_SAVED),
        key=lambda path: int(path.name.rpartition("_")[2]),
        default=None,
    )
