"""Check that vLLM uses the adapters that it loads."""

from pathlib import Path
from shutil import rmtree
from typing import Any

import torch
from safetensors.torch import load_file, save_file

from agentgym.engines.vllm.server import VllmServer
from agentgym.engines.vllm.settings import BASE
from agentgym.errors import EngineError

NAME = f"{BASE}-proof"
_WEIGHTS = "adapter_model.safetensors"
_SCALE = 0.1
_PROMPT = [40, 41, 42, 43]
"""Token ids that every vocabulary has; their text does not matter."""
_TOKENS = 8
_ROUNDING = 0.05
"""Log-probabilities may differ by this many nats with equal weights, due to caching."""


def check_adapters_are_used(server: VllmServer, folder: Path) -> None:
    """Check that vLLM answers differently with an adapter of large random weights.

    The trained adapter cannot be used for this check, since a server in bfloat16 rounds
    away the small changes of the first updates. ``folder`` has a copy of the trained
    adapter. Its weights are replaced by random ones; after the check it is removed.

    Raises:
        EngineError: The answers with and without the adapter are the same.
    """
    weights = load_file(folder / _WEIGHTS)
    noise = torch.Generator().manual_seed(0)
    for name, tensor in weights.items():
        if ".lora_B." in name:
            drawn = torch.randn(tensor.shape, generator=noise)
            weights[name] = (_SCALE * drawn).to(tensor.dtype)
    save_file(weights, folder / _WEIGHTS)
    given = {"lora_name": NAME, "lora_path": str(folder)}
    server.ask("POST", "/v1/load_lora_adapter", json=given)
    answers = [_answer(server, name) for name in (BASE, NAME)]
    server.ask("POST", "/v1/unload_lora_adapter", json={"lora_name": NAME})
    rmtree(folder, ignore_errors=True)
    (bare, bare_logprobs), (adapted, logprobs) = answers
    gaps = [abs(a - b) for a, b in zip(bare_logprobs, logprobs, strict=False)]
    if bare == adapted and max(gaps, default=0.0) < _ROUNDING:
        raise EngineError(
            "vLLM answers the same with an adapter as without: it takes adapters and "
            "does not use them, so that nothing it samples would come from the trained "
            f"weights. Leave out vllm flags that this may be due to; its log is "
            f"{server.log}."
        )


def _answer(server: VllmServer, model: str) -> tuple[list[int], list[float]]:
    """Sample a short answer with a fixed seed; return ids and log-probabilities."""
    asked: dict[str, Any] = {
        "model": model,
        "prompt": _PROMPT,
        "max_tokens": _TOKENS,
        "temperature": 1.0,
        "seed": 0,
        "logprobs": 0,
        "return_token_ids": True,
        "skip_special_tokens": False,
    }
    completion = server.ask("POST", "/v1/completions", json=asked)
    try:
        choice = completion["choices"][0]
        return list(choice["token_ids"]), list(choice["logprobs"]["token_logprobs"])
    except (KeyError, IndexError, TypeError):
        raise EngineError(
            f"vLLM gives no log-probabilities: {completion!r:.200}."
        ) from None
