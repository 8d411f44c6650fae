"""Cluster: verl's workers, its inference servers and weight transfer, on Ray."""

import os
import sys
from collections.abc import Sequence
from typing import Any

from agentgym.plugins.verl.compose import compose
from agentgym.plugins.verl.rows import UpdateRow
from agentgym.plugins.verl.updates import Updates


class Cluster:
    """Starts verl's workers and servers, and runs the engine's requests on them."""

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

        from agentgym.plugins.verl import learner

        config = compose(settings)
        OmegaConf.resolve(config)
        self._config, self._ray = config, ray
        self.version = 0
        join(ray, dict(config.ray_kwargs.ray_init))
        # Send the module by value: other nodes do not have AgentGym.
        ray.cloudpickle.register_pickle_by_value(learner)
        nodes, each = config.trainer.nnodes, config.trainer.n_gpus_per_node
        model = config.actor_rollout_ref.model
        copied = config.actor_rollout_ref.actor.use_kl_loss and not model.lora_rank
        # With an adapter, the untrained model is the model without the adapter.
        role, name = "actor_rollout_ref" if copied else "actor_rollout", "agentgym"
        pools = ResourcePoolManager({name: [each] * nodes}, {role: name})
        pools.create_resource_pool()
        pool = pools.get_resource_pool(role)
        worker = RayClassWithInitArgs(
            cls=ray.remote(learner.VerlLearner),
            config=config.actor_rollout_ref,
            distillation_config=config.get("distillation"),
            critic=config.critic if config.critic.enable else None,
            role=role,
        )
        group = RayWorkerGroup(
            resource_pool=pool,
            ray_cls_with_init=create_colocated_worker_cls({role: worker}),
            device_name=get_device_name(),
        )
        self._workers = group.spawn(prefix_set={role})[role]
        self._workers.init_model()
        self._updates = Updates(self._workers, config, nodes * each)
        self._servers = LLMServerManager.create(
            config=config, worker_group=self._workers, rollout_resource_pool=pool
        )
        engine = config.actor_rollout_ref.rollout.checkpoint_engine
        self._sync = CheckpointEngineManager(
            config=omega_conf_to_dataclass(engine),
            actor_wg=self._workers,
            replicas=self._servers.get_replicas(),
        )
        self._is_awake = True
        self._send(0)

    def state(self) -> dict[str, Any]:
        """Return the servers' addresses, the model, and the version of the weights."""
        servers = [f"http://{a}/v1" for a in self._servers.get_addresses()]
        model = self._config.actor_rollout_ref.model.path
        return {"servers": servers, "model": model, "version": self.version}

    def update(
        self, rows: Sequence[UpdateRow], version: int, rate: float, temperature: float
    ) -> dict[str, Any]:
        """Do one optimizer step; the servers then answer with the new weights.

        ``version`` is the number of updates, including this one. The result is that of
        :meth:`Updates.learn`. Without rows, the weights stay the same, and the result
        is empty.
        """
        if version != self.version + 1:
            raise ValueError(
                f"update {version} was asked for, and the weights have had "
                f"{self.version}"
            )
        done: dict[str, Any] = {}
        if rows:
            self._sleep()
            done = self._updates.learn(rows, rate, temperature)
            self._send(version)
        self.version = version
        return done

    def imitate(self, rows: Sequence[UpdateRow], rate: float) -> dict[str, float]:
        """Do one step of supervised fine-tuning."""
        self._sleep()
        return self._updates.imitate(rows, rate)

    def measure(self, rows: Sequence[UpdateRow]) -> dict[str, float]:
        """Return ``loss``, the mean loss per trained token; change no weights."""
        self._sleep()
        return {"loss": self._updates.measure(rows)}

    def refresh(self, version: int) -> None:
        """Send the fine-tuned weights to the servers, and reset the optimizer."""
        self._workers.forget_moments()
        self._sleep()
        self._send(version)

    def save(self, folder: str) -> None:
        """Write weights, optimizer and random state."""
        self._workers.save_checkpoint(folder, None, self.version, None)

    def load(self, folder: str, version: int) -> None:
        """Load a checkpoint of :meth:`save`, and send the weights to the servers."""
        self._sleep()
        self._workers.load_checkpoint(folder)
        self.version = version
        self._send(version)

    def export(self, folder: str) -> None:
        """Write the model (only the adapter, if one is trained) for transformers."""
        dtype = self._config.actor_rollout_ref.rollout.dtype
        self._workers.export(folder, dtype)

    def _sleep(self) -> None:
        """Let the servers free their GPU memory, unless they sleep already."""
        if self._is_awake:
            self._sync.sleep_replicas()
        self._is_awake = False

    def _send(self, version: int) -> None:
        """Send the learner's weights to the servers, and wake them up."""
        self._sleep()
        self._sync.update_weights(version)
        self._is_awake = True

    def close(self) -> None:
        """End the workers; also end the Ray cluster if :func:`join` started it."""
        self._ray.shutdown()


def join(ray: Any, given: dict[str, Any]) -> None:
    """Join the Ray cluster at RAY_ADDRESS, or start one for this process.

    A new cluster listens on loopback, and keeps its files in this process's HOME.
    ``given`` are arguments for ``ray.init``; None values are ignored. For a cluster at
    RAY_ADDRESS, only the argument ``runtime_env`` is used.
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
