"""The policy of the fake vLLM: real weights on the CPU, which adapters change."""

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from agentgym.core.policy import ChatRequest, ChatResult
from agentgym.engines.local.loading import load_model
from agentgym.engines.local.policy import LocalPolicy
from agentgym.rollout.gateway.chat import completion_body

_PREFIX = "base_model.model."


class FakeWeights:
    """A policy whose weights are those of the base, or with one adapter."""

    def __init__(self, model: str) -> None:
        torch.set_num_threads(1)
        loaded = load_model(model, device="cpu", rank=None, seed=0)
        self._parameters = dict(loaded.model.named_parameters())
        self._base = {name: p.detach().clone() for name, p in self._parameters.items()}
        self._active: Path | None = None
        self._read: dict[Path, dict[str, torch.Tensor]] = {}
        self.policy = LocalPolicy(loaded)

    def become(self, adapter: Path | None) -> None:
        """Answer with the weights of an adapter, or the base's."""
        if adapter == self._active:
            return
        if adapter is not None and adapter not in self._read:
            self._read[adapter] = _added(adapter)
        added = {} if adapter is None else self._read[adapter]
        with self.policy.decoder.paused(), torch.no_grad():
            for key, parameter in self._parameters.items():
                whole = self._base[key]
                parameter.copy_(whole + added[key] if key in added else whole)
        self._active = adapter

    def request(self, body: dict[str, Any], hotter: float) -> ChatRequest:
        """Return what a chat completion asks."""
        return ChatRequest(
            messages=body["messages"],
            tools=body.get("tools") or [],
            temperature=body["temperature"] * hotter,
            max_tokens=body["max_tokens"],
            seed=body.get("seed") or 0,
        )


def _added(folder: Path) -> dict[str, torch.Tensor]:
    """Return what an adapter adds to each matrix."""
    settings = json.loads((folder / "adapter_config.json").read_text())
    parts = load_file(folder / "adapter_model.safetensors")
    scale = settings["lora_alpha"] / settings["r"]
    added = {}
    for name, down in parts.items():
        if ".lora_A." in name:
            up = parts[name.replace(".lora_A.", ".lora_B.")]
            whole = name.removeprefix(_PREFIX).replace(".lora_A", "")
            added[whole] = scale * up @ down
    return added


def answer(result: ChatResult, name: str, body: dict[str, Any]) -> dict[str, Any]:
    """Return a completion with what was asked for, in the form that vLLM has."""
    made = completion_body(result, "chatcmpl-1", name)
    (choice,) = made["choices"]
    entries = [
        {"token": f"token_id:{i}", "logprob": x, "bytes": None, "top_logprobs": []}
        for i, x in zip(result.response_ids, result.logprobs, strict=True)
    ]
    choice["logprobs"] = {"content": entries} if body.get("logprobs") else None
    if not body.get("return_token_ids"):
        choice["token_ids"] = made["prompt_token_ids"] = None
    return made
