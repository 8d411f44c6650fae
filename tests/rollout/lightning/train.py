"""Agent Lightning's trainer, as its users call it; runs in its own environment."""

import importlib.resources
import json
import sys
from pathlib import Path
from typing import Any


def settings(asked: dict[str, Any]) -> dict[str, Any]:
    """Return what differs from Agent Lightning's own settings."""
    floats = {"param_dtype": "fp32", "reduce_dtype": "fp32", "buffer_dtype": "fp32"}
    longest = 800
    return {
        "algorithm": {"adv_estimator": "grpo"},
        "data": {
            "train_batch_size": 4,
            "val_batch_size": 4,
            "dataloader_num_workers": 0,
            "max_prompt_length": longest,
            "max_response_length": longest,
        },
        "actor_rollout_ref": {
            "model": {
                "path": asked["model"],
                "use_remove_padding": False,
                "enable_gradient_checkpointing": False,
                "override_config": {"attn_implementation": "sdpa"},
            },
            "rollout": {
                "name": "hf_cpu",
                "n": 4,
                "tensor_model_parallel_size": 1,
                "free_cache_engine": False,
                "n_gpus_per_node": 1,
                "log_prob_micro_batch_size_per_gpu": 16,
                "agent": {"num_workers": 1},
            },
            "actor": {
                "strategy": "fsdp2",
                "use_torch_compile": False,
                "ppo_mini_batch_size": 1,
                "ppo_micro_batch_size_per_gpu": 4,
                "use_kl_loss": False,
                "entropy_coeff": 0.0,
                "optim": {"lr": 1e-4},
                "fsdp_config": {
                    "strategy": "fsdp2",
                    "use_torch_compile": False,
                    "mixed_precision": floats,
                },
            },
        },
        "reward": {"num_workers": 1},
        "trainer": {
            "n_gpus_per_node": 1,
            "nnodes": 1,
            "device": "cuda",  # a logical one
            "val_before_train": False,
            "test_freq": -1,
            "save_freq": -1,
            "total_epochs": 1,
            "total_training_steps": 1,
            "resume_mode": "disable",
            "logger": ["console", "file"],
            "project_name": "test",
            "experiment_name": "test",
            "default_local_dir": asked["folder"],
        },
        "ray_kwargs": {
            "ray_init": {
                "_node_ip_address": "127.0.0.1",
                "num_cpus": 8,
                "num_gpus": 1,
                "include_dashboard": False,
                # Agent Lightning's hook loads verl in every process of Ray's.
                "runtime_env": {"worker_process_setup_hook": "train.nothing"},
            }
        },
        "agentlightning": {
            "agl_base_url": asked["url"],
            "agl_key": asked["key"],
            "rollout_timeout_seconds": 600,
            "trace_aggregator": {
                "level": "trajectory",
                "trajectory_max_prompt_length": longest,
                "trajectory_max_response_length": longest,
            },
        },
    }


def nothing() -> None:
    """Be called in each of Ray's processes."""


def main() -> None:
    from agentlightning.verl.entrypoint import run_ppo
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf

    asked = json.loads(sys.argv[1])
    place = str(importlib.resources.files("agentlightning.verl"))
    with initialize_config_dir(config_dir=place, version_base=None):
        base = compose(config_name="config")
    OmegaConf.set_struct(base, False)
    lines = Path(asked["rows"]).read_text(encoding="utf-8").splitlines()
    rows = [json.loads(line) for line in lines]
    run_ppo(OmegaConf.merge(base, settings(asked)), rows, rows[:4])


if __name__ == "__main__":
    main()
