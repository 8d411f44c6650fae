"""What the tests with a real verl on the CPU share."""

import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file

from agentgym.core.config import TrainingConfig
from agentgym.engines.base import TrainingBatch, UpdateMetrics
from agentgym.engines.local.engine import LocalEngine
from agentgym.plugins.verl.engine import VerlEngine
from tests.processes import MARK, processes_of

ROOT = Path(__file__).parents[3]
ENVIRONMENT = "VERL_ENVIRONMENT"
GAP = 1e-4
"""Most nats, in the mean, between log-probabilities of the sampler and the learner.

Both compute in float32. 0.1 ends a run.
"""
FLOATS = {"param_dtype": "fp32", "reduce_dtype": "fp32", "buffer_dtype": "fp32"}
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
            "dtype": "float32",
            "load_format": "auto",
        },
        "actor": {
            "use_torch_compile": False,
            "ppo_mini_batch_size": 1,
            "fsdp_config.use_torch_compile": False,
            "fsdp_config.mixed_precision": FLOATS,
        },
    },
    "ray_kwargs": {"ray_init": {"num_gpus": 1, "num_cpus": 8}},
}
CRITIC_ON_CPU: dict[str, Any] = {
    "critic.model.use_remove_padding": False,
    "critic.model.enable_gradient_checkpointing": False,
    "critic.model.override_config.attn_implementation": "sdpa",
    "critic.ppo_mini_batch_size": 1,
    "critic.fsdp.use_torch_compile": False,
    "critic.fsdp.mixed_precision": FLOATS,
}
"""Of verl's settings: what differs without a GPU and without vLLM."""


ON_THE_CPU = {
    "VERL_PLATFORM": "cpu",
    "VERL_USE_EXTERNAL_MODULES": "cpu_backend",
    "PYTHONPATH": str(Path(__file__).parent),
    "OMP_NUM_THREADS": "1",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
}
"""The environment of verl's processes without a GPU."""


def place_of_verl() -> Path:
    """Return the folder of the environment with verl; skip the test without one."""
    place = os.environ.get(ENVIRONMENT)
    if not place:
        pytest.skip(f"{ENVIRONMENT} names no environment with verl 0.9")
    return Path(place).resolve()


def run_in_verl(
    *words: str | Path, text: str | None = None, **variables: str
) -> "subprocess.CompletedProcess[str]":
    """Run Python with verl and, if it needs no more packages, with ours."""
    path = [str(ROOT / "src"), str(ROOT), ON_THE_CPU["PYTHONPATH"]]
    paths = {"PYTHONPATH": os.pathsep.join(path)}
    return subprocess.run(
        [place_of_verl() / "bin" / "python", *words],
        input=text,
        env={**os.environ, **ON_THE_CPU, **paths, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


def config(output: Path, **settings: Any) -> TrainingConfig:
    small = {
        "scenario": "coding",
        "framework": "native",
        "engine": "verl",
        "episodes": 16,
        "tasks_per_step": 2,
        "group_size": 4,
        "task_choice": "uniform",
        "test_tasks": 2,
        "eval_samples": 1,
        "eval_tasks": 2,
        "eval_every": 10,
        "early_stop": False,
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
    """Yield a mark in the environment of all that verl starts here."""
    place = str(place_of_verl())
    yield from marked_engine("verl", place, own_home, monkeypatch, ON_THE_CPU)


def marked_engine(
    engine: str,
    place: str,
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    variables: Mapping[str, str],
) -> Iterator[str]:
    """Install an engine, and mark its processes; none of them may be left."""
    (home / "engines").mkdir()
    (home / "engines" / engine).symlink_to(Path(place).resolve())
    mark = f"{os.getpid()}-{time.time_ns()}"
    for name, value in {MARK: mark, **variables}.items():
        monkeypatch.setenv(name, value)
    yield mark
    left = processes_of(mark)
    assert not left, left


def updates_of(
    engine: type[LocalEngine] | type[VerlEngine], monkeypatch: pytest.MonkeyPatch
) -> list[tuple[TrainingBatch, UpdateMetrics]]:
    """Return where engines of a class note what they are given and what they say."""
    seen: list[tuple[TrainingBatch, UpdateMetrics]] = []
    update: Any = engine.update

    def watched(self: Any, batch: TrainingBatch) -> UpdateMetrics:
        done: UpdateMetrics = update(self, batch)
        seen.append((batch, done))
        return done

    monkeypatch.setattr(engine, "update", watched)
    return seen


def check_sampled(
    seen: list[tuple[TrainingBatch, UpdateMetrics]], settings: TrainingConfig
) -> float:
    """Check that each step was sampled from the weights that the last one made.

    Returns:
        How far the untrained model's log-probabilities are from the second step's.
    """
    assert all(0 < done.logprob_gap < GAP for _, done in seen)
    local = settings.replaced(engine="local", gpu="none", verl={"settings": {}})
    with closing(LocalEngine.create(local)) as untrained:
        gap = untrained.update(seen[1][0]).logprob_gap
    assert gap > 10 * seen[1][1].logprob_gap, (
        "else it could be the untrained model's sample"
    )
    return gap


def tensors(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for path in sorted(folder.rglob("*.safetensors")):
        found |= load_file(path)
    return found
