"""Models that would be trained or decoded wrongly are refused when they are loaded."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoConfig, AutoModelForCausalLM

from agentgym.engines.local.loading import LoadedModel, load_model
from agentgym.errors import ModelError
from tests.engines.conftest import make_tokenizer

Load = Callable[..., LoadedModel]
LATENT = {
    "num_key_value_heads": 4,
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
    "n_routed_experts": 4,
    "num_experts_per_tok": 2,
    "n_group": 1,
    "topk_group": 1,
    "n_shared_experts": 1,
    "moe_intermediate_size": 16,
}
ROPE = {"rope_theta": 10_000.0, "factor": 4.0, "original_max_position_embeddings": 64}


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Return what loads a tiny model of a kind, with random weights."""

    def loading(kind: str, **changes: Any) -> LoadedModel:
        tokenizer = make_tokenizer()
        config = AutoConfig.for_model(
            kind,
            **{
                "vocab_size": len(tokenizer),
                "hidden_size": 32,
                "intermediate_size": 64,
                "num_hidden_layers": 2,
                "num_attention_heads": 4,
                "num_key_value_heads": 2,
                "max_position_embeddings": 256,
                "pad_token_id": 0,
                "bos_token_id": None,
                "eos_token_id": 1,
                **changes,
            },
        )
        AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
        tokenizer.save_pretrained(tmp_path)
        return load_model(str(tmp_path), device="cpu", rank=0, seed=0)

    return loading


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3", "phi3"])
def test_a_model_with_full_attention_is_loaded(load: Load, kind: str) -> None:
    assert load(kind).context == 256


@pytest.mark.parametrize("kind", ["nemotron", "stablelm"])
def test_a_model_whose_attention_mixes_branches_is_refused(
    load: Load, kind: str
) -> None:
    with pytest.raises(ModelError, match="cannot be told which tokens see each"):
        load(kind)


def test_a_model_with_values_narrower_than_keys_is_refused(load: Load) -> None:
    with pytest.raises(ModelError, match="keys and values .* differ in shape"):
        load("deepseek_v3", first_k_dense_replace=1, **LATENT)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("llama", {"rope_type": "dynamic", **ROPE}),
        (
            "phi3",
            {
                "rope_type": "longrope",
                "short_factor": [1.0] * 4,
                "long_factor": [4.0] * 4,
                **ROPE,
            },
        ),
    ],
)
def test_positions_that_depend_on_the_longest_row_are_refused(
    load: Load, kind: str, settings: dict[str, Any]
) -> None:
    with pytest.raises(
        ModelError, match=f"positions of type {settings['rope_type']!r}"
    ):
        load(kind, rope_parameters=settings)


def test_positions_that_are_stretched_once_for_all_are_loaded(load: Load) -> None:
    assert load("llama", rope_parameters={"rope_type": "yarn", **ROPE}).context == 256
