"""How vLLM and the learner share one GPU, and which engine ``auto`` takes for it."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agentgym.core.config import TrainingConfig
from agentgym.engines import memory
from agentgym.engines.registry import check_engine, chosen_engine, paced_settings
from agentgym.errors import NotEnoughMemoryError
from agentgym.models.nano import nano_path
from agentgym.plugins.vllm import settings
from agentgym.plugins.vllm.group import GpuSettings
from agentgym.train.plan import make_plan
from tests.engines.test_memory import QWEN, SEVEN
from tests.plugins.vllm.conftest import CPU_VERSION, make_environment

Tells = Callable[..., None]


@pytest.fixture
def tells(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Tells:
    """Return what lets the driver tell of a GPU: its free GiB and its capability."""
    tools = tmp_path / "bin"
    tools.mkdir()
    driver = tools / "nvidia-smi"
    monkeypatch.setenv("PATH", str(tools), prepend=":")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(settings, "visible_gpus", lambda: ["0"])

    def telling(free: float, capability: str = "8.9") -> None:
        driver.write_text(f"#!/bin/sh\necho '{int(free * 1024)}, {capability}'\n")
        driver.chmod(0o755)

    return telling


def model(folder: Path, shape: dict[str, Any]) -> str:
    """Write a model without weights, and return its folder."""
    weights = shutil.ignore_patterns("*.safetensors")
    shutil.copytree(nano_path(), folder, ignore=weights)
    (folder / "config.json").write_text(json.dumps(shape))
    return str(folder)


@pytest.fixture
def half(tmp_path: Path) -> str:
    """Return a model of half a billion parameters."""
    return model(tmp_path / "half", QWEN)


@pytest.fixture
def seven(tmp_path: Path) -> str:
    """Return a model of 7.6 billion parameters."""
    return model(tmp_path / "seven", SEVEN)


@pytest.mark.slow
def test_vllm_is_taken_where_it_is_installed_and_fits(
    own_home: Path, tells: Tells, half: str
) -> None:
    make_environment(own_home)
    tells(22)
    config, note = chosen_engine(TrainingConfig.create(model=half))
    assert (config.engine, note) == ("vllm", "")
    found = paced_settings(config)
    assert (GpuSettings.of(found).memory_share, found.max_episode_tokens) == (0.5, 8192)
    assert check_engine(config).device == "one GPU, by turns with vLLM"


@pytest.mark.slow
@pytest.mark.parametrize("version", [None, CPU_VERSION])
def test_where_it_is_not_installed_the_plan_says_how(
    own_home: Path,
    tells: Tells,
    half: str,
    monkeypatch: pytest.MonkeyPatch,
    version: str | None,
) -> None:
    monkeypatch.setattr(memory, "free_ram", lambda: 64 * memory.GIB)
    if version is not None:
        make_environment(own_home, version)
    tells(22)
    plan = make_plan(TrainingConfig.create(model=half))
    assert plan.config.engine == "local"
    assert "`agentgym engine install vllm`" in plan.notes[0]


@pytest.mark.parametrize(
    "given",
    [
        {"model": "nano"},
        {"gpu": "none"},
        {"deterministic": True},
        {"lora_rank": 0},
        {"engine": "local"},
    ],
    ids=str,
)
def test_what_vllm_is_not_for_stays_in_process(
    own_home: Path, tells: Tells, half: str, given: dict[str, Any]
) -> None:
    make_environment(own_home)
    tells(22)
    config, note = chosen_engine(TrainingConfig.create(**{"model": half, **given}))
    assert (config.engine, note) == ("local", "")


def test_without_a_gpu_for_it_nothing_is_said_of_vllm(
    own_home: Path, tells: Tells, monkeypatch: pytest.MonkeyPatch, half: str
) -> None:
    make_environment(own_home)
    tells(22, "7.5")  # without bfloat16
    assert chosen_engine(TrainingConfig.create(model=half))[0].engine == "local"
    monkeypatch.setattr(settings, "visible_gpus", list)
    config, note = chosen_engine(TrainingConfig.create(model=half))
    assert (config.engine, note) == ("local", "")
    wanted = config.replaced(engine="auto", vllm={"max_num_seqs": 8})
    assert chosen_engine(wanted)[0].engine == "vllm"


@pytest.mark.slow
def test_episodes_are_shorter_where_the_memory_needs_it(
    own_home: Path, tells: Tells, half: str
) -> None:
    make_environment(own_home)
    tells(6.8)
    plan = make_plan(TrainingConfig.create(model=half))
    assert plan.config.engine == "vllm"
    assert plan.config.max_episode_tokens == 4096
    assert any("after 4,096 tokens of a rollout" in note for note in plan.notes)
    own = TrainingConfig.create(model=half, max_episode_tokens=1024)
    assert make_plan(own).config.max_episode_tokens == 1024


@pytest.mark.slow
def test_a_share_that_leaves_vllm_no_room_is_refused(
    own_home: Path, tells: Tells, seven: str
) -> None:
    make_environment(own_home)
    tells(44)
    config = TrainingConfig.create(model=seven, engine="vllm")
    assert check_engine(config).memory
    with pytest.raises(NotEnoughMemoryError) as caught:
        check_engine(config.replaced(**{"gpus.memory_share": 0.2}))
    told = str(caught.value)
    assert "memory_share = 0.2 gives vLLM 8.8 of the GPU's 44.0 GiB free" in told
    least = float(told.partition("Set gpus.memory_share to ")[2].partition(" ")[0])
    assert check_engine(config.replaced(**{"gpus.memory_share": least})).memory


@pytest.mark.slow
def test_where_no_share_is_enough_the_reason_is_said(
    own_home: Path, tells: Tells, seven: str
) -> None:
    make_environment(own_home)
    tells(30)
    with pytest.raises(NotEnoughMemoryError) as caught:
        check_engine(TrainingConfig.create(model=seven, engine="vllm"))
    assert "No value is enough: the GPU has 30.0 GiB free" in str(caught.value)
    assert "Leave --engine out" in str(caught.value)
