"""Hooks that make Agent Lightning's trainer wait for AgentGym and report updates.

Agent Lightning loads this file by its path, in the trainer's process. So the file
imports nothing of AgentGym. The two sides exchange files in the folder that the
environment variable ``LIGHTNING_FOLDER`` names:

    ready-1      from the trainer: its servers have the newest weights, and it waits
    go-1         from AgentGym: ids of the rollouts for the trainer's next step
    update-1     from the trainer: rows and metrics of this step's update; missing if
                 the trainer skipped the update
"""

import json
import os
import time
from pathlib import Path
from typing import Any

from agentlightning.hooks import RolloutHooks

FOLDER = "LIGHTNING_FOLDER"
# Metadata key for the id of a finished rollout; AgentGym's gateway reads it.
_EXISTING = "existing"
_TURN_S = 0.05
_MEASURES = {
    "loss": "actor/pg_loss",
    "grad_norm": "actor/grad_norm",
    "entropy": "actor/entropy_loss",
    "kl": "actor/ppo_kl",
    "clip_fraction": "actor/pg_clipfrac",
}


class LoopHooks(RolloutHooks):
    """Gives the trainer the rollouts that AgentGym ran, instead of new rollouts."""

    def __init__(self) -> None:
        self._folder = Path(os.environ[FOLDER])
        self._asked: list[str] = []
        self._turn = 0

    def on_startup(self, store: Any = None) -> None:
        """Patch the trainer's class to also write each update's rows and metrics."""
        from agentlightning.verl.trainer import AgentLightningRayPPOTrainer

        update = AgentLightningRayPPOTrainer._update_actor

        def recorded(trainer: Any, batch: Any) -> Any:
            done = update(trainer, batch)
            found = {
                "rows": rows_of(batch),
                "measures": measures_of(done.meta_info["metrics"]),
            }
            self._write(f"update-{self._turn}", found)
            return done

        AgentLightningRayPPOTrainer._update_actor = recorded

    def on_enqueue(self, request: Any) -> Any:
        """Add to a rollout request the id of a rollout that AgentGym has already run.

        At the beginning of a step, first wait until AgentGym has run the step's
        rollouts.
        """
        if not self._asked:
            self._turn += 1
            self._write(f"ready-{self._turn}", {})
            self._asked = self._await(f"go-{self._turn}")
        return request.model_copy(update={"metadata": {_EXISTING: self._asked.pop(0)}})

    def _await(self, name: str) -> Any:
        path = self._folder / name
        while not path.exists():
            time.sleep(_TURN_S)
        return json.loads(path.read_text(encoding="utf-8"))

    def _write(self, name: str, value: Any) -> None:
        path = self._folder / f".{name}"
        path.write_text(json.dumps(value))
        path.rename(self._folder / name)


def rows_of(batch: Any) -> list[dict[str, Any]]:
    """Return each row's rollout id, reward, advantage, and prompt and response length.

    A row is one training sequence. The advantages are those before Agent Lightning
    divides them by the number of rows and by the rollout's number of trained tokens.
    """
    made = batch.batch
    size = made["responses"].shape[-1]
    names = [str(name) for name in batch.non_tensor_batch["rollout_id_list"]]
    mask = made["response_mask"].float()
    trained = mask.sum(-1)
    of_rollout: dict[str, float] = {}
    for name, count in zip(names, trained.tolist(), strict=True):
        of_rollout[name] = of_rollout.get(name, 0.0) + count
    means = (made["advantages"].float() * mask).sum(-1) / trained.clamp_min(1.0)
    rows = zip(
        names,
        made["attention_mask"][:, :-size].sum(-1).tolist(),
        made["attention_mask"][:, -size:].sum(-1).tolist(),
        made["token_level_scores"].float().sum(-1).tolist(),
        means.tolist(),
        strict=True,
    )
    return [
        {
            "rollout": name,
            "prompt": int(prompt),
            "response": int(response),
            "reward": reward,
            "advantage": mean * of_rollout[name] * len(names),
        }
        for name, prompt, response, reward, mean in rows
    ]


def measures_of(metrics: dict[str, Any]) -> dict[str, float]:
    """Return the trainer's metrics by AgentGym's names, as means over mini-batches."""
    found = {}
    for name, key in _MEASURES.items():
        values = _flat(metrics.get(key, []))
        if values:
            found[name] = sum(values) / len(values)
    return found


def _flat(value: Any) -> list[float]:
    if isinstance(value, list | tuple):
        return [number for part in value for number in _flat(part)]
    return [float(value)]
