"""verl's actor, its inference servers and the way of the weights, on Ray."""

import math
import os
import sys
from collections.abc import Sequence
from typing import Any

from agentgym.engines.verl.compose import compose
from agentgym.engines.verl.protocol import Row
from agentgym.engines.verl.rows import divisible, to_tensors

_MEASURED_ROWS = 8


class Cluster:
    """What an engine needs of verl; made of a composed configuration."""

    def __init__(self, settings: dict[str, Any]) -> None:
        import ray
        from omegaconf import OmegaConf
        from verl.checkpoint_engine import CheckpointEngineManager
        from verl.single_controller.ray import RayClassWithInitArgs, RayWorkerGroup
        from verl.single_controller.ray.base import (
            ResourcePoolManager,
            create_colocated_worker_cls,
        )
        from verl.utils.config import omega_conf_to_dataclass
        from verl.utils.device import get_device_name
        from verl.workers.rollout.llm_server import LLMServerManager

        from agentgym.engines.verl import learner

        config = compose(settings)
        OmegaConf.resolve(config)
        self._config, self._ray = config, ray
        self.version = 0
        join(ray, dict(config.ray_kwargs.ray_init))
        # Other nodes need nothing of this package.
        ray.cloudpickle.register_pickle_by_value(learner)
        nodes, each = config.trainer.nnodes, config.trainer.n_gpus_per_node
        self._ranks = nodes * each
        role, name = "actor_rollout", "agentgym"
        pools = ResourcePoolManager({name: [each] * nodes}, {role: name})
        pools.create_resource_pool()
        pool = pools.get_resource_pool(role)
        worker = RayClassWithInitArgs(
            cls=ray.remote(learner.Learner),
            config=config.actor_rollout_ref,
            distillation_config=config.get("distillation"),
            role=role,
        )
        group = RayWorkerGroup(
            resource_pool=pool,
            ray_cls_with_init=create_colocated_worker_cls({role: worker}),
            device_name=get_device_name(),
        )
        self._workers = group.spawn(prefix_set={role})[role]
        self._workers.init_model()
        self._servers = LLMServerManager.create(
            config=config, worker_group=self._workers, rollout_resource_pool=pool
        )
        engine = config.actor_rollout_ref.rollout.checkpoint_engine
        self._sync = CheckpointEngineManager(
            config=omega_conf_to_dataclass(engine),
            actor_wg=self._workers,
            replicas=self._servers.get_replicas(),
        )
        self._sync.sleep_replicas()
        self._sync.update_weights(0)

    def state(self) -> dict[str, Any]:
        """Return where the servers are and which weights they have."""
        servers = [f"http://{a}/v1" for a in self._servers.get_addresses()]
        model = self._config.actor_rollout_ref.model.path
        return {"servers": servers, "model": model, "version": self.version}

    def update(
        self, rows: Sequence[Row], version: int, rate: float, temperature: float
    ) -> dict[str, float]:
        """Take one step of the optimizer; the servers answer with its weights then.

        Args:
            rows: None leave the weights as they are.
            version: The updates after this one.
            rate: The learning rate.
            temperature: Of sampling.
        """
        if version != self.version + 1:
            raise ValueError(
                f"update {version} was asked for, and the weights have had "
                f"{self.version}"
            )
        done: dict[str, float] = {}
        if rows:
            self._sync.sleep_replicas()
            done = self._learn(rows, rate, temperature)
            self._sync.update_weights(version)
        self.version = version
        return done

    def _learn(
        self, rows: Sequence[Row], rate: float, temperature: float
    ) -> dict[str, float]:
        from verl.utils import tensordict_utils

        actor = self._config.actor_rollout_ref.actor
        padded = divisible(rows, self._ranks)
        data = self._batch(padded, temperature)
        tensordict_utils.assign_non_tensor(
            data,
            calculate_entropy=True,
            distillation_use_topk=False,
            global_batch_size=len(padded),
            mini_batch_size=len(padded),
            epochs=1,
            seed=0,
            dataloader_kwargs={"shuffle": False},
            compute_loss=True,
        )
        self._workers.set_rate(rate)
        answer = self._workers.update_actor(data)
        found = tensordict_utils.get(answer, "metrics")
        flat = {key: _number(value) for key, value in found.items()}
        return {
            "loss": flat["actor/pg_loss"],
            "grad_norm": flat["grad_norm"],
            "entropy": flat["actor/entropy_loss"],
            "clip_fraction": flat["clipped"],
            "gap": flat["gap"],
            "kl": self._moved(rows, temperature),
            "rate": rate,
            "clip": float(actor.clip_ratio),
        }

    def _batch(self, rows: Sequence[Row], temperature: float) -> Any:
        """Return rows as verl's workers take them."""
        from tensordict import TensorDict
        from verl.utils import tensordict_utils
        from verl.workers.utils.padding import left_right_2_no_padding

        actor = self._config.actor_rollout_ref.actor
        longest = max(len(row["ids"]) for row in rows)
        data = left_right_2_no_padding(TensorDict(to_tensors(rows), len(rows)))
        tensordict_utils.assign_non_tensor(
            data,
            temperature=temperature,
            use_dynamic_bsz=True,
            max_token_len_per_gpu=max(actor.ppo_max_token_len_per_gpu, longest),
        )
        return data

    def _moved(self, rows: Sequence[Row], temperature: float) -> float:
        """Return the mean k3 estimate of some tokens between sampling and now."""
        from verl.utils import tensordict_utils
        from verl.workers.utils.padding import no_padding_2_padding

        some = divisible(rows[:_MEASURED_ROWS], self._ranks)
        data = self._batch(some, temperature)
        tensordict_utils.assign_non_tensor(
            data, calculate_entropy=False, compute_loss=False
        )
        answer = self._workers.compute_log_prob(data)
        now = no_padding_2_padding(answer["log_probs"], data)
        covered = data["response_mask"].bool()
        apart = (now.float() - data["old_log_probs"])[covered]
        return float((apart.exp() - 1 - apart).mean())

    def save(self, folder: str) -> list[str]:
        """Write weights, optimizer and random state; return the files' names."""
        self._workers.save_checkpoint(folder, None, self.version, None)
        return sorted(os.listdir(folder))

    def load(self, folder: str, version: int) -> None:
        """Continue from what :meth:`save` wrote; the servers get these weights."""
        self._sync.sleep_replicas()
        self._workers.load_checkpoint(folder)
        self.version = version
        self._sync.update_weights(version)

    def export(self, folder: str) -> None:
        """Write the adapter, or the model, in Hugging Face format."""
        dtype = self._config.actor_rollout_ref.rollout.dtype
        self._workers.export(folder, dtype)

    def close(self) -> None:
        """End the workers, and Ray if it was started for them."""
        self._ray.shutdown()


def join(ray: Any, given: dict[str, Any]) -> None:
    """Join the Ray cluster of RAY_ADDRESS, or start one for this process alone.

    A cluster of our own listens on loopback, and keeps its files in the HOME that this
    process was given.
    """
    given = {key: value for key, value in given.items() if value is not None}
    environment = given.pop("runtime_env", None) or {}
    environment = {k: v for k, v in dict(environment).items() if v is not None}
    address = os.environ.get("RAY_ADDRESS")
    if address:
        ray.init(address=address, runtime_env=environment)
        return
    own: dict[str, Any] = {
        "_node_ip_address": "127.0.0.1",
        "_temp_dir": os.path.join(os.path.expanduser("~"), "r"),
        "include_dashboard": False,
        "log_to_driver": True,
        "runtime_env": environment,
    }
    try:
        ray.init(**{**own, **given})
    except Exception as error:  # noqa: BLE001 - the wait for its first process is short and fixed
        sys.stderr.write(f"Ray did not start ({error}); trying once more\n")
        ray.shutdown()
        ray.init(**{**own, **given})


def _number(value: Any) -> float:
    """Return a metric that came for each mini-batch, of which there is one."""
    while isinstance(value, list | tuple):
        value = value[0] if value else math.nan
    return float(value)
