"""Models with full attention are loaded, whatever their positions."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from agentgym.engines.local.loading import load_model
from agentgym.engines.local.model import LoadedModel
from tests.engines.local.architectures import save

Load = Callable[..., LoadedModel]
ROPE = {"rope_theta": 10_000.0, "factor": 4.0, "original_max_position_embeddings": 64}


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Return what loads a tiny model of a kind, with random weights."""

    def loading(kind: str, **changes: Any) -> LoadedModel:
        save(kind, tmp_path, max_position_embeddings=256, **changes)
        return load_model(str(tmp_path), device="cpu", rank=0, seed=0)

    return loading


@pytest.mark.parametrize("kind", ["llama", "qwen2", "qwen3", "phi3"])
def test_a_model_with_full_attention_is_loaded(load: Load, kind: str) -> None:
    assert load(kind).context == 256


@pytest.mark.parametrize(
    ("kind", "settings", "context"),
    [
        ("llama", {"rope_type": "dynamic", **ROPE}, 256),
        ("llama", {"rope_type": "yarn", **ROPE}, 256),
        (
            "phi3",
            {
                "rope_type": "longrope",
                "short_factor": [1.0] * 4,
                "long_factor": [4.0] * 4,
                **ROPE,
            },
            64,
        ),
    ],
)
def test_positions_that_change_with_the_text_are_used_where_they_do_not(
    load: Load, kind: str, settings: dict[str, Any], context: int
) -> None:
    original = ROPE["original_max_position_embeddings"]
    changes = {"original_max_position_embeddings": original} if kind == "phi3" else {}
    assert load(kind, rope_parameters=settings, **changes).context == context


def test_no_attention_is_used_that_plans_each_new_shape(load: Load) -> None:
    torch.backends.cuda.enable_cudnn_sdp(True)
    load("llama")
    assert not torch.backends.cuda.cudnn_sdp_enabled()
