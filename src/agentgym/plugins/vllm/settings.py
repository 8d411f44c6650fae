"""Convert a run's settings into the command line of ``vllm serve``."""

import json
import os
import shlex
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from agentgym.core.config import Precision, TrainingConfig
from agentgym.engines.settings import base_source, context_length
from agentgym.errors import ConfigError, UnsupportedError, UsageError
from agentgym.models.folder import DEFAULT_RANK, LORA_RANKS, held_rank, model_source
from agentgym.plugins.vllm.environment import is_for_cpu
from agentgym.plugins.vllm.group import GpuSettings, VllmSettings

BASE = "agentgym"  # vLLM's name for the model without an adapter
KEY_VARIABLE = "VLLM_API_KEY"
_SHARED, _ALONE = 0.5, 0.9
# Variable with the size of vLLM's KV cache on a CPU, and our default in GB.
_CPU_CACHE, _CPU_CACHE_GB = "VLLM_CPU_KVCACHE_SPACE", "1"
_DEVICES = Path("/dev")
# Flags for which AgentGym has its own setting, which other engines read too.
_OURS = {
    "gpu_memory_utilization": "gpus.memory_share",
    "max_lora_rank": "lora_rank",
    "model": "model",
    "seed": "seed",
    "tensor_parallel_size": "gpus.tensor_parallel",
}
# Flags that users may not set: another value would break serving or training.
_FIXED = (
    *("api_key", "api_server_count", "config", "data_parallel_size"),
    *("enable_auto_tool_choice", "enable_lora", "enable_sleep_mode"),
    *("generation_config", "grpc", "headless", "host", "logprobs_mode"),
    *("lora_modules", "override_generation_config", "root_path"),
    *("served_model_name", "ssl_certfile", "ssl_keyfile"),
    *("structured_outputs_config", "tool_call_parser", "tokens_only", "uds"),
)
_LOGS_TEXTS = "enable_log_requests", "enable_log_outputs"


def on_cpu(config: TrainingConfig) -> bool:
    """Return whether vLLM and the learner both compute on the CPU.

    They do with ``--gpu none``. With ``auto``, they do if this machine has no GPU and
    the installed vLLM is a CPU build.
    """
    if config.gpu == "auto" and not visible_gpus():
        return is_for_cpu()
    return config.gpu == "none"


def learner_precision(config: TrainingConfig) -> Precision:
    """Return the setting ``precision`` for the learner's base model.

    On the CPU, ``auto`` becomes ``float32`` for the learner and for vLLM: in bfloat16,
    vLLM would round away the changes of the first updates.
    """
    if on_cpu(config) and config.precision == "auto":
        return "float32"
    return config.precision


def learner_config(config: TrainingConfig) -> TrainingConfig:
    """Return the settings with the rank and the precision that the learner uses."""
    return config.replaced(
        lora_rank=trained_rank(config), precision=learner_precision(config)
    )


def shares_gpu(config: TrainingConfig) -> bool:
    """Return whether vLLM and the learner take turns on one GPU."""
    return GpuSettings.of(config).per_node == 1 and not on_cpu(config)


def memory_share(config: TrainingConfig) -> float:
    """Return the share of a GPU's memory, 0..1, that vLLM takes while it is awake."""
    usual = _SHARED if shares_gpu(config) else _ALONE
    return GpuSettings.of(config).memory_share or usual


def trained_rank(config: TrainingConfig) -> int:
    """Return the rank of the trained adapter; 0 if no adapter is to be trained."""
    held = held_rank(Path(model_source(config.model)))
    return held or (DEFAULT_RANK if config.lora_rank is None else config.lora_rank)


def vllm_settings(config: TrainingConfig) -> dict[str, Any]:
    """Return vLLM's flags and their values; names are written with underscores."""
    flags = VllmSettings.of(config).settings
    given = {key.replace("-", "_"): value for key, value in flags.items()}
    _check_given(given)
    for name in _LOGS_TEXTS if config.private else ():
        if given.get(name):
            raise ConfigError(
                f"vllm.{name} = True writes requests into vllm.log, and private = true "
                "keeps texts out of files: leave out one."
            )
    rank = trained_rank(config)
    _check_rank(config, rank)
    _check_gpus(config)
    return {
        "served_model_name": BASE,
        "host": "127.0.0.1",
        "max_model_len": context_length(config),
        "seed": config.seed % 2**31,
        **(_cpu_settings(config) if on_cpu(config) else _gpu_settings(config)),
        "enable_lora": True,
        "max_loras": 1,
        "max_lora_rank": next(room for room in LORA_RANKS if room >= rank),
        # Log-probabilities like the learner's: with the temperature applied, but
        # without top-p and penalties from the model's generation settings.
        "logprobs_mode": "processed_logprobs",
        "generation_config": "vllm",
        # The learner applies grammars with the same library.
        "structured_outputs_config": {"backend": "guidance"},
        "disable_uvicorn_access_log": True,
        **given,
    }


def _gpu_settings(config: TrainingConfig) -> dict[str, Any]:
    return {
        "dtype": "bfloat16",
        "gpu_memory_utilization": memory_share(config),
        "tensor_parallel_size": GpuSettings.of(config).tensor_parallel,
        "enable_sleep_mode": shares_gpu(config) or None,
    }


def _cpu_settings(config: TrainingConfig) -> dict[str, Any]:
    """Return the flags for vLLM's CPU build.

    Chunked prefill is disabled: with it, a request with a seed makes vLLM's worker end.
    """
    length = VllmSettings.of(config).settings.get("max_model_len")
    return {
        "dtype": "bfloat16" if learner_precision(config) == "bf16" else "float32",
        "enforce_eager": True,
        "enable_chunked_prefill": False,
        "max_num_batched_tokens": length or context_length(config),
    }


def command_line(config: TrainingConfig, program: str, port: int | str) -> list[str]:
    """Return the command that starts vLLM, as a list of arguments."""
    words = [program, "serve", base_source(config.model)]
    for key, value in {**vllm_settings(config), "port": port}.items():
        flag, _, rest = key.partition(".")
        name = flag.replace("_", "-") + (f".{rest}" if rest else "")
        if isinstance(value, bool):
            words.append(f"--{name}" if value else f"--no-{name}")
        elif value is not None:
            values = value if isinstance(value, list) else [value]
            words += [f"--{name}", *map(_word, values)]
    return words


def variables(config: TrainingConfig) -> dict[str, str]:
    """Return the environment variables to set for vLLM's process.

    They allow loading adapters while vLLM runs. They also enable the development
    endpoints, such as ``/sleep``, which is safe since vLLM listens on loopback only.
    """
    values = {
        "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
        "VLLM_SERVER_DEV_MODE": "1",
        "VLLM_NO_USAGE_STATS": "1",
    }
    if config.private:  # at another level, or with the second, it logs answers
        values |= {
            "VLLM_LOGGING_LEVEL": "INFO",
            "VLLM_DEBUG_LOG_API_SERVER_RESPONSE": "0",
        }
    if on_cpu(config):
        values["CUDA_VISIBLE_DEVICES"] = ""
        values[_CPU_CACHE] = os.environ.get(_CPU_CACHE, _CPU_CACHE_GB)
    elif not shares_gpu(config):
        count = GpuSettings.of(config).per_node
        gpus = visible_gpus()[1:count]  # the first is the learner's
        values["CUDA_VISIBLE_DEVICES"] = ",".join(gpus)
    return values


def own_environment(given: Mapping[str, str]) -> dict[str, str]:
    """Return environment variables without those that configure this Python."""
    ours = {"PYTHONHOME", "PYTHONPATH", "PYTHONSTARTUP", "VIRTUAL_ENV"}
    return {name: value for name, value in given.items() if name not in ours}


def shown(config: TrainingConfig, program: str) -> str:
    """Return the command that starts vLLM as text for a shell."""
    prefix = [f"{name}={value}" for name, value in variables(config).items()]
    port = VllmSettings.of(config).settings.get("port", "PORT")
    words = iter(command_line(config, program, port))
    lines = [" ".join([*prefix, *(shlex.quote(next(words)) for _ in range(3))])]
    for word in words:
        if word.startswith("--"):
            lines.append(f"    {word}")
        else:
            lines[-1] += f" {shlex.quote(word)}"
    return " \\\n".join(lines)


def free_port(wanted: int | None) -> int:
    """Return a free port of loopback; raise UsageError if ``wanted`` is in use."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", wanted or 0))
        except OSError as error:
            raise UsageError(
                f"vllm.port = {wanted}: the port cannot be used ({error.strerror}). "
                "Choose another, or leave it out."
            ) from None
        return int(probe.getsockname()[1])


def _check_given(given: dict[str, Any]) -> None:
    for key, value in given.items():
        flag, what = key.partition(".")[0], f"vllm.{key} = {value!r}"
        if flag in _OURS:
            raise ConfigError(
                f"{what}: set {_OURS[flag]} instead, which other engines read too."
            )
        if flag in _FIXED:
            raise ConfigError(f"{what}: that is how it is trained with; leave it out.")
    port = given.get("port", 1)
    if type(port) is not int or not 0 < port < 2**16:
        raise ConfigError(f"vllm.port = {port!r}: a port is a number from 1 to 65535.")


def _check_rank(config: TrainingConfig, rank: int) -> None:
    if not rank:
        raise UnsupportedError(
            "lora_rank = 0 with engine = 'vllm', which gets a new adapter after each "
            "update. Leave lora_rank unset, or choose --engine local or verl."
        )
    if config.lora_rank not in (None, rank):
        raise UnsupportedError(
            f"lora_rank = {config.lora_rank} with model = {config.model!r}: that "
            f"folder holds an adapter of rank {rank}, which is trained. Leave "
            "lora_rank unset, or give the adapter's base model."
        )
    if rank > LORA_RANKS[-1]:
        raise UnsupportedError(
            f"lora_rank = {rank} with engine = 'vllm': it takes adapters of rank "
            f"{LORA_RANKS[-1]} at most."
        )


def _check_gpus(config: TrainingConfig) -> None:
    gpus = GpuSettings.of(config)
    if on_cpu(config):
        for name, value in gpus:
            if value != type(gpus).model_fields[name].default:
                raise UnsupportedError(
                    f"gpus.{name} = {value} with gpu = 'none': vLLM computes on the "
                    f"CPU then. Leave gpus.{name} out, or leave --gpu out. Set "
                    f"{_CPU_CACHE} in the environment to vLLM's cache in GB."
                )
        return
    alone = max(1, gpus.per_node - 1)
    if gpus.tensor_parallel != alone:
        raise UnsupportedError(
            f"gpus.tensor_parallel = {gpus.tensor_parallel} with gpus.per_node = "
            f"{gpus.per_node} and engine = 'vllm': one GPU learns, or learns and "
            f"answers; the others answer together. Set gpus.tensor_parallel to {alone}."
        )


def _word(value: Any) -> str:
    return json.dumps(value) if isinstance(value, dict) else str(value)


def visible_gpus() -> list[str]:
    """Return the GPUs that this process may use, as ids for CUDA_VISIBLE_DEVICES."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES")
    there = [path.name for path in _DEVICES.glob("nvidia[0-9]*")]
    if given is None or not there:
        return [name.removeprefix("nvidia") for name in sorted(there)]
    return [name.strip() for name in given.split(",") if name.strip() not in ("", "-1")]
