"""The docs' tables of GPUs are what a run chooses, and near what others measured."""

import json
import shutil
from importlib import import_module
from pathlib import Path
from types import ModuleType

import pytest

from agentgym.core.config import TrainingConfig
from agentgym.engines.registry import chosen_engine, paced_settings
from agentgym.models.nano import nano_path
from agentgym.plugins.vllm import settings
from agentgym.plugins.vllm.group import GpuSettings
from tests.plugins.vllm.conftest import make_environment

ROOT = Path(__file__).parents[2]
SIZES = ("0.5b", "1.5b", "3b", "7b")
CARDS = (12, 24, 48, 80)


@pytest.fixture
def recipes(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the script that makes the tables."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    return import_module("gpu_recipes")


@pytest.fixture
def home(own_home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return AGENTGYM_HOME with vLLM's environment, on a machine with one GPU."""
    make_environment(own_home)
    monkeypatch.setattr(settings, "visible_gpus", lambda: ["0"])
    return own_home


def test_the_docs_have_its_tables(recipes: ModuleType) -> None:
    docs = (ROOT / "docs" / "gpu_training.md").read_text()
    tables = (recipes.table(), recipes.settings_table(), recipes.published_table())
    for lines in tables:
        assert "\n".join(lines) in docs


@pytest.mark.slow
@pytest.mark.parametrize("card", CARDS)
@pytest.mark.parametrize("size", SIZES)
def test_a_run_chooses_what_the_table_says(
    recipes: ModuleType,
    home: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    size: str,
    card: int,
) -> None:
    assert (recipes.SIZES, recipes.CARDS) == (SIZES, CARDS)
    model, tools = tmp_path / "model", tmp_path / "bin"
    weights = shutil.ignore_patterns("*.safetensors")
    shutil.copytree(nano_path(), model, ignore=weights)
    shape = {"model_type": "qwen2", **recipes.settings(size)}
    (model / "config.json").write_text(json.dumps(shape))
    tools.mkdir()
    driver = tools / "nvidia-smi"
    driver.write_text(f"#!/bin/sh\necho '{recipes.free_bytes(card) >> 20}, 8.9'\n")
    driver.chmod(0o755)
    monkeypatch.setenv("PATH", str(tools), prepend=":")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr("agentgym.engines.local.support.find_device", lambda _: "cuda")

    config, note = chosen_engine(TrainingConfig.create(model=str(model)))
    found, expected = paced_settings(config), recipes.choose(size, card)

    assert config.engine == (expected.engine or "local")
    assert (GpuSettings.of(found).memory_share or 0.0) == expected.share
    assert found.episode_tokens == (expected.tokens or 8192)
    assert note.startswith("sampled in this process") == (not expected.share)


@pytest.mark.parametrize(
    ("name", "least", "most"), [("Qwen-7B", 0.92, 1.03), ("Qwen-14B", 0.97, 1.06)]
)
def test_estimates_are_near_what_was_measured(
    recipes: ModuleType, name: str, least: float, most: float
) -> None:
    ratios = [estimate / measured for measured, estimate in recipes.compare(name)]
    assert least < min(ratios)
    assert max(ratios) < most


def test_of_a_small_model_with_a_large_vocabulary_less_is_kept(
    recipes: ModuleType,
) -> None:
    """Logits of all tokens, which Qwen's script keeps and this learner does not.

    Three numbers of four bytes for each of 151,936 words: 14 GB with 8,192 tokens.
    """
    found = recipes.compare("Qwen-1.8B")
    for tokens, (measured, estimate) in zip(recipes.LENGTHS, found, strict=True):
        logits = 3 * 4 * tokens * 151_936 / 2**30
        assert 0.6 < estimate / measured < 1.05
        assert measured < estimate + logits
