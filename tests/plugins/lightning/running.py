"""What the tests with Agent Lightning's trainer on the CPU share."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agentgym.core.config import TrainingConfig
from tests.plugins.verl.running import FLOATS, marked_engine

ENVIRONMENT = "AGENTLIGHTNING_ENVIRONMENT"
TESTS = Path(__file__).parents[2]
PLUG_INS = (TESTS / "rollout" / "lightning", TESTS / "plugins" / "verl")
"""Folders of the plug-in that stands for a GPU: ``cpu_lightning``."""
ON_CPU: dict[str, Any] = {
    "actor_rollout_ref": {
        "model": {
            "use_remove_padding": False,
            "enable_gradient_checkpointing": False,
            "override_config.attn_implementation": "sdpa",
        },
        "rollout": {
            "name": "hf_cpu",
            "free_cache_engine": False,
            "n_gpus_per_node": 1,
            "log_prob_micro_batch_size_per_gpu": 16,
            "agent.num_workers": 1,
        },
        "actor": {
            "use_torch_compile": False,
            "ppo_micro_batch_size_per_gpu": 4,
            "fsdp_config.use_torch_compile": False,
            "fsdp_config.mixed_precision": FLOATS,
        },
    },
    "reward": {"num_workers": 1},
    "ray_kwargs": {
        "ray_init": {
            "num_gpus": 1,
            "num_cpus": 8,
            # Agent Lightning's hook loads verl in every process of Ray's.
            "runtime_env.worker_process_setup_hook": "train.nothing",
        }
    },
}
"""Of their settings: what differs without a GPU and without vLLM."""
ON_THE_CPU = {
    "VERL_USE_EXTERNAL_MODULES": "cpu_lightning",
    "PYTHONPATH": os.pathsep.join(map(str, PLUG_INS)),
    "OMP_NUM_THREADS": "1",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
"""The environment of their processes without a GPU."""


def config(output: Path, **settings: Any) -> TrainingConfig:
    small = {
        "scenario": "coding",
        "framework": "langchain",
        "engine": "lightning",
        "algorithm": "grpo",
        "episodes": 16,
        "tasks_per_step": 4,
        "group_size": 4,
        "task_choice": "uniform",
        "test_tasks": 2,
        "eval_samples": 1,
        "eval_tasks": 2,
        "eval_every": 10,
        "early_stop": False,
        "max_tokens": 96,
        "max_episode_tokens": 800,
        "yes": True,
        "tracker": "none",
        "workers": 1,
        "rollout_timeout_s": 600.0,
        "learning_rate": 1e-4,
        "verl": ON_CPU,
        "output": output,
    }
    return TrainingConfig.create(**{**small, **settings})


@pytest.fixture
def on_cpu(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Yield a mark in the environment of all that the trainer starts here."""
    place = os.environ.get(ENVIRONMENT)
    if not place:
        pytest.skip(f"{ENVIRONMENT} names no environment with agentlightning and verl")
    yield from marked_engine("lightning", place, own_home, monkeypatch, ON_THE_CPU)
