"""The recipes of each scenario: configurations that say what they need."""

from pathlib import Path

import pytest
import yaml

from agentgym.core.config import TrainingConfig
from agentgym.plugins.verl.settings import verl_settings
from agentgym.plugins.vllm import settings as vllm

ROOT = Path(__file__).parents[2]
RECIPES = sorted(ROOT.glob("scenarios/*/recipes/*.yaml"))
MACHINES = ("24gb-0.5b", "24gb-1.5b", "80gb-7b", "8x80gb-7b", "2x8x80gb-32b")


def test_there_are_recipes_for_each_size_of_machine() -> None:
    found = {(path.parts[-3], path.stem) for path in RECIPES}
    scenarios = ("coding", "customer_support", "flight_booking")
    assert found == {(name, machine) for name in scenarios for machine in MACHINES}


@pytest.mark.parametrize("path", RECIPES, ids=lambda p: f"{p.parts[-3]}/{p.stem}")
def test_a_recipe_is_a_configuration_that_says_what_it_needs(path: Path) -> None:
    text = path.read_text()
    config = TrainingConfig.from_yaml(path)
    assert config.scenario == path.parts[-3]
    assert set(yaml.safe_load(text)) <= set(TrainingConfig.names())
    for part in ("# Needs: ", "# Should take: ", "# An estimate:", "--config"):
        assert part in text
    assert text.count(str(path.relative_to(ROOT))) == 1
    assert path.stem.endswith(f"-{config.model.split('-')[1].lower()}")
    if path.stem.split("gb")[0] in ("24", "80"):
        check_one_gpu(config, text)
    else:
        check_many(config)


def check_one_gpu(config: TrainingConfig, text: str) -> None:
    assert config.engine == "vllm"
    words = vllm.command_line(config, "vllm", 8000)
    assert words[:3] == ["vllm", "serve", config.model]
    share = words[words.index("--gpu-memory-utilization") + 1]
    assert f"{float(share) * 100:.0f} %" in text
    assert vllm.shares_gpu(config)


def check_many(config: TrainingConfig) -> None:
    assert config.engine == "verl"
    settings = verl_settings(config)
    gpus = settings["trainer.n_gpus_per_node"] * settings["trainer.nnodes"]
    assert gpus in (8, 16)
    assert config.tasks_per_step * config.group_size % gpus == 0
