"""How much of a GPU a model is said to need."""

import json
from pathlib import Path

import pytest

from agentgym.core.config import TrainingConfig
from agentgym.errors import ModelError, UsageError
from agentgym.plugins.cloud.sizes import Need, need_of


def need(model: str, **settings: object) -> Need:
    return need_of(TrainingConfig.create(model=model, **settings))


@pytest.mark.parametrize(
    ("model", "parameters"),
    [
        ("Qwen/Qwen3-4B", 4e9),
        ("Qwen/Qwen2.5-0.5B-Instruct", 0.5e9),
        ("HuggingFaceTB/SmolLM2-135M-Instruct", 135e6),
        ("mistralai/Mixtral-8x7B-Instruct-v0.1", 56e9),
        ("Qwen/Qwen3-30B-A3B", 30e9),
        ("meta-llama/Llama-3.1-8b", 8e9),
    ],
)
def test_parameters_by_name_are_said_to_be_so(model: str, parameters: float) -> None:
    found = need(model)
    assert found.parameters == parameters
    assert "by its name" in found.words


@pytest.mark.parametrize("model", ["microsoft/phi-4", "gpt2/large", "a/v2.0-beta"])
def test_a_name_that_tells_nothing_is_refused(model: str) -> None:
    with pytest.raises(UsageError, match=r"How large is .*--model its folder"):
        need(model)


def test_a_folder_is_counted(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"torch_dtype": "bfloat16"}))
    (tmp_path / "model.safetensors").write_bytes(b"x" * 2_000_000)
    found = need(str(tmp_path))
    assert found.parameters == 1_000_000
    assert "counted in its folder" in found.words
    assert 1e6 < need("nano").parameters < 2e7


def test_a_model_whose_config_is_here_needs_what_its_engine_says(
    tmp_path: Path,
) -> None:
    (tmp_path / "config.json").write_text(
        json.dumps(
            {
                "model_type": "qwen2",
                "hidden_size": 1536,
                "intermediate_size": 8960,
                "num_hidden_layers": 28,
                "num_attention_heads": 12,
                "num_key_value_heads": 2,
                "vocab_size": 151936,
                "tie_word_embeddings": True,
            }
        )
    )
    found = need(str(tmp_path), lora_rank=16)
    assert found.parameters == 1_543_714_304
    assert found.weights_gb == pytest.approx(2 * 1.543714304)
    assert "by its config.json" in found.words
    shorter = need(str(tmp_path), lora_rank=16, max_episode_tokens=1024)
    assert shorter.activations_gb < found.activations_gb


def test_a_folder_that_is_none_is_refused() -> None:
    with pytest.raises(ModelError, match="does not exist"):
        need("./no-4B-here")


def test_what_is_learned_decides() -> None:
    adapter, full = need("Qwen/Qwen3-4B"), need("Qwen/Qwen3-4B", lora_rank=0)
    assert (adapter.rank, full.rank) == (16, 0)
    assert 16 < adapter.gb < 24  # what people train a 4B adapter on
    assert full.gb > 4e9 * 16 / 1e9
    assert need("Qwen/Qwen3-4B", lora_rank=64).gb > adapter.gb
