"""Estimate the GPU memory for training a model, before the model is downloaded.

The estimate depends on the model's number of parameters. It counts weights, gradients,
AdamW's two moments, activations of a backward pass, and the KV cache of running
episodes. It is only exact enough to choose a GPU.
"""

import re
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from agentgym.core.config import AUTO_ENGINE, TrainingConfig
from agentgym.engines.memory import MemoryEstimate, shape_of, told_use
from agentgym.engines.registry import remote_engine
from agentgym.engines.vllm.turns import ASLEEP_BYTES, SERVER_BYTES
from agentgym.errors import ModelError, UsageError
from agentgym.models.folder import (
    ADAPTER_FILE,
    held_rank,
    model_source,
    new_rank,
    read_json,
)

_SIZE = re.compile(
    r"(?<![A-Za-z0-9.])(?:(\d+)x)?(\d+(?:\.\d+)?)([BbMm])(?![A-Za-z0-9])"
)
_UNITS = {"b": 1e9, "m": 1e6}
_GB = 1e9
_HALF, _FULL = 2, 4
_ADAPTER = 0.01
"""An adapter's parameters at rank 16, as a share of the model's parameters."""
_LEARNED = 4 * _FULL
"""Bytes per trained parameter: the parameter, its gradient and two moments."""
_KEPT_GB, _KEPT_EACH_B = 3.0, 0.6
_CACHE_GB, _CACHE_EACH_B = 2.0, 0.4
_CUDA_GB = 1.0


@dataclass(frozen=True)
class Need:
    """The GPU memory that training a model needs.

    Attributes:
        parameters: Number of the model's parameters.
        source: How this number is known, e.g. ``by its config.json``.
        rank: Rank of the trained LoRA adapter; 0 if all weights are trained.
        weights_gb: GB of the loaded weights; 0 if ``learning_gb`` includes them.
        learning_gb: GB of the adapter's weights, the gradients and AdamW's moments.
        activations_gb: GB of the activations of a backward pass.
        cache_gb: GB of the KV cache of running episodes, and of CUDA itself.
        served_gb: GB of vLLM's weights, KV cache and own memory; 0 without vLLM.
    """

    parameters: float
    source: str
    rank: int
    weights_gb: float
    learning_gb: float
    activations_gb: float
    cache_gb: float
    served_gb: float = 0.0

    @property
    def engine(self) -> str:
        """The engine of this estimate: ``vllm`` or ``local``."""
        return "vllm" if self.served_gb else "local"

    @property
    def gb(self) -> float:
        """GB of the peak memory.

        vLLM and the backward pass take turns, so only the larger of them counts.
        """
        kept = self.weights_gb + self.learning_gb
        if not self.served_gb:
            return kept + self.activations_gb + self.cache_gb
        return kept + max(self.served_gb, self.activations_gb + ASLEEP_BYTES / _GB)

    @property
    def words(self) -> str:
        """Text with the peak memory, its parts, and the source of the estimate."""
        learned = f"LoRA rank {self.rank}" if self.rank else "full weights"
        last = f", activations {self.activations_gb:.1f}, KV cache and CUDA "
        last += f"{self.cache_gb:.1f}"
        if self.served_gb:
            last = f", and by turns vLLM {self.served_gb:.1f} or activations "
            last += f"{self.activations_gb:.1f}"
        return (
            f"{self.gb:.0f} GB: weights {self.weights_gb:.1f}, {learned} with its "
            f"optimizer {self.learning_gb:.1f}{last} ({self.source})"
        )


def needs_of(config: TrainingConfig) -> list[Need]:
    """Return the GPU memory that a run needs with each engine that it may use."""
    need, engine = need_of(config), remote_engine(config)
    if engine == "local":
        return [need]
    served = need.parameters * _HALF + SERVER_BYTES
    served_gb = served / _GB + max(0.0, need.cache_gb - _CUDA_GB)
    with_vllm = replace(need, served_gb=served_gb)
    return [with_vllm] if engine != AUTO_ENGINE else [with_vllm, need]


def need_of(config: TrainingConfig) -> Need:
    """Return the GPU memory that a run needs with the local engine, without vLLM."""
    known = None
    with suppress(ModelError):  # another engine may train this architecture
        known = shape_of(config.model)
    if known is not None:
        shape, held = known
        use = told_use(config, on_gpu=True, has_half=True)
        found = MemoryEstimate.of(shape, use, held)
        return Need(
            parameters=held or shape.parameters,
            source="by its config.json",
            rank=use.rank,
            weights_gb=found.weights / _GB,
            learning_gb=(found.adapter + found.gradients + found.optimizer) / _GB,
            activations_gb=found.activations / _GB,
            cache_gb=(found.least_cache + found.overhead) / _GB,
        )
    parameters, source = _parameters(config.model)
    rank = held_rank(Path(model_source(config.model))) or new_rank(
        config.model, config.lora_rank
    )
    billions = parameters / 1e9
    each = parameters * _HALF if rank else 0.0
    learned = parameters * (_ADAPTER * rank / 16 if rank else 1) * _LEARNED
    return Need(
        parameters=parameters,
        source=source,
        rank=rank,
        weights_gb=each / _GB,
        learning_gb=learned / _GB,
        activations_gb=_KEPT_GB + _KEPT_EACH_B * billions,
        cache_gb=_CACHE_GB + _CACHE_EACH_B * billions + _CUDA_GB,
    )


def _parameters(model: str) -> tuple[float, str]:
    """Return a model's number of parameters, and how this number is known."""
    folder = Path(model_source(model))
    if folder.is_dir():
        if (folder / ADAPTER_FILE).is_file():
            base = read_json(folder / ADAPTER_FILE).get("base_model_name_or_path")
            return _parameters(str(base))
        kind = read_json(folder / "config.json")
        dtype = kind.get("dtype") or kind.get("torch_dtype")
        size = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
        if size:
            each = _FULL if dtype in (None, "float32") else _HALF
            return size / each, "counted in its folder"
    found = _SIZE.search(folder.name)
    if found is None:
        raise UsageError(
            f"How large is {model!r}? Its name does not say, as '4B' or '0.5B' would, "
            "and it is not on this machine, so no GPU can be chosen for it. Download "
            "it, and give --model its folder."
        )
    experts, number, unit = found.groups()
    count = float(number) * int(experts or 1) * _UNITS[unit.lower()]
    return count, f"{found[0]} parameters, by its name"
