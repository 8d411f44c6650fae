"""LightningEngine: Agent Lightning's trainer updates the weights and serves them."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from agentgym.core.components import Components
from agentgym.core.config import TrainingConfig
from agentgym.core.files import Beat, no_beat
from agentgym.core.policy import RegisteredPolicy
from agentgym.core.trajectory import ModelCall
from agentgym.engines.base import Engine, TrainingBatch, UpdateMetrics
from agentgym.engines.checkpoint import (
    MANIFEST,
    check_model,
    read_manifest,
    write_manifest,
)
from agentgym.engines.lightning.ledger import own_credit
from agentgym.engines.lightning.process import TrainerProcess
from agentgym.engines.lightning.settings import (
    FILL_VALUE,
    lightning_settings,
    row_limit,
    started_at,
)
from agentgym.engines.settings import log_file
from agentgym.errors import CheckpointError, EngineError

SKIPPED = "too few rows for one mini-batch, so that the trainer skipped the step"
_NAME = "lightning"
_SAVED = "global_step_*"


class LightningEngine(Engine):
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
        self._policy = _Policy(self, self._settings["actor_rollout_ref.model.path"])
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
        """The policy; the trainer registers its servers at AgentGym's gateway."""
        return self._policy

    @property
    def step(self) -> int:
        """Number of updates so far."""
        return self._step

    @property
    def failure(self) -> str:
        """Why the trainer's process ended; empty if it runs or has not been started."""
        return "" if self._process is None else self._process.failure

    def label(self, call: ModelCall) -> list[Components] | None:
        """Return None: the trainer trains on all response tokens, without labels."""
        return None

    def connect(self, gateway: str, key: str, beat: Beat) -> None:
        """Start the trainer with the gateway's address; wait until its servers run.

        ``key`` is the gateway's key. ``beat`` is called regularly during the wait, to
        show that this process is alive.
        """
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
        return {"name": self._config.model, "gpus": self._config.gpus_per_node}

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


class _Policy(RegisteredPolicy):
    """The policy that the gateway serves; the engine starts and watches its trainer."""

    def __init__(self, engine: LightningEngine, model_name: str) -> None:
        self._engine = engine
        self.model_name = model_name

    @property
    def failure(self) -> str:
        return self._engine.failure

    def connect(self, gateway: str, key: str, beat: Beat) -> None:
        self._engine.connect(gateway, key, beat)


def _newest(saved: Path) -> Path | None:
    """Return the newest checkpoint in the trainer's folder, or None."""
    return max(
        saved.glob(_SAVED),
        key=lambda path: int(path.name.rpartition("_")[2]),
        default=None,
    )
