"""verl with Ray learns, and a real vLLM on the CPU samples from its weights.

It needs both environments: docs/gpu_training.md says how to run it.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from agentgym import Trainer
from agentgym.engines.environments import installed_version
from agentgym.engines.settings import flat
from agentgym.plugins.verl.engine import VerlEngine
from tests.plugins.verl.cpu_vllm import COMMAND
from tests.plugins.verl.running import ON_CPU, check_sampled, config, on_cpu, updates_of
from tests.real_models import VLLM_FOLDER, VLLM_ON_CPU

__all__ = ["on_cpu"]

pytestmark = [pytest.mark.sweep, pytest.mark.timeout(1800), VLLM_ON_CPU]


def test_grpo_steps_are_sampled_by_vllm_from_what_verl_learned(
    on_cpu: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    assert VLLM_FOLDER is not None
    monkeypatch.setenv(COMMAND, str(VLLM_FOLDER / "bin" / "vllm"))
    seen = updates_of(VerlEngine, monkeypatch)
    settings = config(
        tmp_path,
        algorithm="grpo",
        framework="langchain",
        verl={**flat(ON_CPU), "actor_rollout_ref.rollout.name": "vllm_cpu"},
    )
    result = Trainer(settings).train()
    assert [done.step for _, done in seen] == [1, 2]
    assert result.ledger.adds_up
    assert all(batch.trained_tokens for batch, _ in seen)
    assert all(done.grad_norm > 0 for _, done in seen)
    untrained = check_sampled(seen, settings)
    version = installed_version(VLLM_FOLDER / "bin" / "python", "vllm")
    gaps = " and ".join(f"{done.logprob_gap:.1e}" for _, done in seen)
    told = f"verl with vLLM {version}: gaps of {gaps} nats, untrained {untrained:.1e}"
    record_property("measured", told)
