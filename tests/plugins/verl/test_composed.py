"""What needs GPUs to run is composed by verl itself, whose classes take it.

It needs verl, so a process of verl's interpreter.
"""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import agentgym
from agentgym.core.config import TrainingConfig
from agentgym.plugins.verl.settings import verl_settings
from tests.plugins.verl.running import run_in_verl

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

PACKAGE = Path(agentgym.__file__).parent
RECIPES = PACKAGE / "packs" / "coding" / "recipes"
MEGATRON = {"verl": {"model_engine": "megatron"}}


def recipe(name: str, **changes: Any) -> dict[str, Any]:
    """Return a recipe's settings for verl."""
    given = yaml.safe_load((RECIPES / f"{name}.yaml").read_text())
    return verl_settings(TrainingConfig.create(**given).replaced(**changes))


def test_verl_composes_the_recipes_for_many_gpus() -> None:
    asked = [
        recipe("8x80gb-7b"),
        recipe("2x8x80gb-32b"),
        recipe("2x8x80gb-32b", **MEGATRON),
        recipe("8x80gb-7b", algorithm="ppo"),
    ]
    script = Path(__file__).with_name("composes.py")
    ran = run_in_verl(script, text=json.dumps(asked))
    assert ran.returncode == 0, ran.stderr
    one, two, megatron, ppo = json.loads(ran.stdout)
    actors = [made["actor_rollout_ref"]["actor"] for made in (one, two, megatron, ppo)]
    strategies = [actor["strategy"] for actor in actors]
    assert strategies == ["fsdp2", "fsdp2", "megatron", "fsdp2"]
    assert actors[1]["fsdp_config"]["optimizer_offload"] is True
    assert actors[2]["megatron"]["optimizer_offload"] is True
    for made, nodes in ((one, 1), (two, 2), (megatron, 2), (ppo, 1)):
        assert made["trainer"]["nnodes"] == nodes
        assert made["trainer"]["n_gpus_per_node"] == 8
        rollout = made["actor_rollout_ref"]["rollout"]
        assert rollout["name"] == "vllm"
        assert rollout["logprobs_mode"] == "processed_logprobs"
        assert rollout["checkpoint_engine"]["backend"] == "naive"
        assert bool(made["critic"]["enable"]) is (made is ppo)
