"""An environment in which something stands for vLLM, and what it has seen."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from agentgym.core.config import TrainingConfig
from agentgym.plugins.vllm import settings
from agentgym.plugins.vllm.engine import NAME, VllmEngine
from agentgym.plugins.vllm.settings import BASE
from tests.processes import MARK, processes_of

ROOT = Path(__file__).parents[3]
FAKE = Path(__file__).with_name("fake_vllm.py")
CPU_VERSION = "0.32.0+cpu"


def make_environment(home: Path, version: str = "0.32.0") -> Path:
    """Make an environment below AGENTGYM_HOME whose ``vllm`` is the fake one."""
    place = home / "engines" / "vllm"
    info = place / "lib" / "python3.12" / "site-packages"
    (info / f"vllm-{version}.dist-info").mkdir(parents=True)
    (place / "bin").mkdir()
    python = place / "bin" / "python"
    python.write_text("#!/bin/sh\necho 0 13.0\n")
    command = place / "bin" / "vllm"
    words = f"PYTHONPATH={ROOT} exec {sys.executable} {FAKE}"
    command.write_text(f'#!/bin/sh\n{words} "$@"\n')
    python.chmod(0o755)
    command.chmod(0o755)
    return place


@dataclass
class Played:
    """What the fake vLLM is to do, and what it was asked.

    Attributes:
        mark: In the environment of all its processes.
    """

    folder: Path
    mark: str

    def script(self, **what: Any) -> None:
        """Say what shall go wrong."""
        (self.folder / "script.json").write_text(json.dumps(what))

    def seen(self, *calls: str) -> list[dict[str, Any]]:
        """Return its requests in order, or those of some kinds.

        Left out is the proof that it uses adapters, which each start begins with.
        """
        path = self.folder / "seen.jsonl"
        lines = path.read_text().splitlines() if path.exists() else []
        every = [json.loads(line) for line in lines]
        proof = {BASE, NAME}
        found = [x for x in every if not proof & {x.get("name"), x.get("model")}]
        return [line for line in found if not calls or line["call"] in calls]


@pytest.fixture
def played(
    own_home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Played]:
    """Yield an environment with the fake vLLM, on a machine that has two GPUs."""
    make_environment(own_home)
    monkeypatch.setattr(settings, "visible_gpus", lambda: ["0", "1"])
    mark = f"{os.getpid()}-{tmp_path.name}"
    folder = tmp_path / "played"
    folder.mkdir()
    for name, value in {
        MARK: mark,
        "FAKE_VLLM": str(folder / "script.json"),
        "FAKE_VLLM_SEEN": str(folder / "seen.jsonl"),
    }.items():
        monkeypatch.setenv(name, value)
    yield Played(folder, mark)
    left = processes_of(mark)
    assert not left, left


@pytest.fixture
def engines(played: Played, tmp_path: Path) -> Iterator[Callable[..., VllmEngine]]:
    """Yield what makes engines, which are closed in the end."""
    made: list[VllmEngine] = []

    def make(**changes: Any) -> VllmEngine:
        made.append(VllmEngine.create(config(tmp_path, **changes)))
        return made[-1]

    yield make
    for engine in made:
        engine.close()


def config(output: Path, **changes: Any) -> TrainingConfig:
    """Return the settings of a small run."""
    small = {
        "scenario": "coding",
        "framework": "langchain",
        "engine": "vllm",
        "lora_rank": 8,
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
        "output": output,
    }
    return TrainingConfig.create(**{**small, **changes})
