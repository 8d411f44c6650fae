"""A real language model, trained by the engines that run without a GPU."""

import json
from pathlib import Path
from shutil import rmtree

import pytest
from safetensors.torch import load_file

from agentgym.engines.settings import base_source
from agentgym.models.checksums import checksums
from agentgym.models.folder import model_source
from tests.real_models import SMOLLM2, VLLM_FOLDER, VLLM_ON_CPU, steps, train

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800), SMOLLM2]


def check_learned(run: Path, *, gap: float) -> None:
    """Check that two updates changed an adapter of SmolLM2.

    Args:
        run: Its folder.
        gap: The most nats between sampling and learning.
    """
    done = steps(run)
    assert [step["step"] for step in done] == [1, 2]
    assert all(step["trained_tokens"] > 0 for step in done)
    assert all(step["grad_norm"] > 0 for step in done)
    assert all(0 <= step["logprob_gap"] < gap for step in done)
    adapter = run / "agent" / "model"
    settings = json.loads((adapter / "adapter_config.json").read_text())
    assert settings["base_model_name_or_path"] == "smollm2"
    weights = load_file(adapter / "adapter_model.safetensors")
    assert any(t.abs().max() > 0 for name, t in weights.items() if "lora_B" in name)


def test_the_local_engine_trains_it_and_its_cache_may_go(
    tmp_path: Path, own_home: Path
) -> None:
    run = train(tmp_path, "smollm2", "local", precision="float32")  # for the gap
    check_learned(run, gap=1e-3)
    folder = Path(model_source("smollm2"))
    whole = checksums(folder)
    assert (folder / "chat_template.jinja").read_text().startswith("{#- ChatML")
    rmtree(own_home / "models")
    again = Path(base_source(str(run / "agent" / "model")))
    assert (again, checksums(again)) == (folder, whole)


@pytest.mark.sweep  # the shipped policy: tests/plugins/vllm/test_real_vllm.py
@VLLM_ON_CPU
def test_vllm_samples_on_the_cpu_what_the_learner_learns_from(
    tmp_path: Path, own_home: Path
) -> None:
    assert VLLM_FOLDER is not None
    (own_home / "engines").mkdir()
    (own_home / "engines" / "vllm").symlink_to(VLLM_FOLDER)
    run = train(tmp_path, "smollm2", "vllm")
    check_learned(run, gap=1e-3)
    log = (run / "vllm.log").read_text()
    (given,) = (line for line in log.splitlines() if "non-default args" in line)
    assert "'enable_lora': True" in given
    assert "tool_call_parser" not in given, "vLLM reads no calls"
    assert "tool_choice" not in given
