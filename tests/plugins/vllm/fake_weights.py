"""The policy of the fake vLLM: real weights on the CPU, which adapters change."""

import asyncio
import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file

from agentgym.core.trajectory import Grammar
from agentgym.engines.local.decoding.decoder import DecodingJob
from agentgym.engines.local.loading import load_model
from agentgym.engines.local.policy import LocalPolicy

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

        @torch.no_grad()
        def copy() -> None:
            for key, parameter in self._parameters.items():
                whole = self._base[key]
                parameter.copy_(whole + added[key] if key in added else whole)

        self.policy.decoder.between_responses(copy)
        self._active = adapter

    async def sample(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the choice of a completion of token ids."""
        wanted = body.get("structured_outputs")
        grammars = self.policy.tokens.grammars
        path = grammars.begin(Grammar(text=wanted["grammar"])) if wanted else None
        job = DecodingJob(
            prompt=body["prompt"],
            head=0,
            session="",
            temperature=body["temperature"],
            max_tokens=body["max_tokens"],
            seed=body.get("seed") or 0,
            path=path,
        )
        self.policy.decoder.submit(job)
        made = await asyncio.wrap_future(job.future)
        assert body["logprobs"] == 0
        assert body["return_token_ids"] is True
        assert body["skip_special_tokens"] is False
        return {
            "index": 0,
            "text": "",
            "token_ids": made.ids,
            "logprobs": {"token_logprobs": made.logprobs},
            "finish_reason": made.finish_reason,
        }


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
