"""vLLM's command line: composed of a run's settings, its flags checked by name."""

import shlex
from pathlib import Path
from typing import Any

import pytest

from agentgym.core.config import TrainingConfig
from agentgym.errors import AgentGymError
from agentgym.plugins.vllm import settings
from agentgym.plugins.vllm.settings import command_line, shown, variables


def made(**changes: Any) -> dict[str, str]:
    """Return the flags of a configuration with their values."""
    config = TrainingConfig.create(engine="vllm", **changes)
    words = command_line(config, "vllm", 8000)
    found: dict[str, str] = {}
    for word in words[3:]:
        if word.startswith("--"):
            flag = word
            found[flag] = ""
        else:
            found[flag] = f"{found[flag]} {word}".strip()
    return found


def refused(**changes: Any) -> str:
    with pytest.raises(AgentGymError) as error:
        made(**changes)
    assert error.value.exit_code == 2
    return str(error.value)


def test_the_command_says_all_that_training_needs() -> None:
    flags = made(
        model="Qwen/Qwen2.5-1.5B-Instruct",
        lora_rank=20,
        **{"gpus.memory_share": 0.4},
        seed=7,
    )
    assert flags == {
        "--served-model-name": "agentgym",
        "--host": "127.0.0.1",
        "--port": "8000",
        "--dtype": "bfloat16",
        "--max-model-len": "8192",
        "--seed": "7",
        "--gpu-memory-utilization": "0.4",
        "--tensor-parallel-size": "1",
        "--enable-sleep-mode": "",
        "--enable-lora": "",
        "--max-loras": "1",
        "--max-lora-rank": "32",
        "--logprobs-mode": "processed_logprobs",
        "--generation-config": "vllm",
        "--structured-outputs-config": '{"backend": "guidance"}',
        "--disable-uvicorn-access-log": "",
    }


def test_what_is_served_is_below_the_adapter(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text(
        '{"r": 4, "base_model_name_or_path": "some/base"}'
    )
    config = TrainingConfig.create(engine="vllm", model=str(tmp_path))
    assert command_line(config, "vllm", 1)[:3] == ["vllm", "serve", "some/base"]
    assert made(model=str(tmp_path))["--max-lora-rank"] == "8"
    assert "holds an adapter of rank 4" in refused(model=str(tmp_path), lora_rank=8)


def test_of_two_gpus_each_has_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "visible_gpus", lambda: ["3", "5", "6", "7"])
    flags = made(**{"gpus.per_node": 2})
    assert "--enable-sleep-mode" not in flags
    assert flags["--gpu-memory-utilization"] == "0.9"
    config = TrainingConfig.create(
        engine="vllm", **{"gpus.per_node": 3, "gpus.tensor_parallel": 2}
    )
    assert variables(config)["CUDA_VISIBLE_DEVICES"] == "5,6"
    shared = TrainingConfig.create(engine="vllm")
    assert "CUDA_VISIBLE_DEVICES" not in variables(shared)
    assert "Set gpus.tensor_parallel to 2" in refused(**{"gpus.per_node": 3})
    assert "Set gpus.tensor_parallel to 1" in refused(**{"gpus.tensor_parallel": 2})


def test_any_flag_of_vllm_is_reached() -> None:
    flags = made(
        vllm={
            "max-num-seqs": 64,
            "max_model_len": "4k",
            "enforce_eager": True,
            "enable_prefix_caching": False,
            "compilation_config": {"level": 3},
            "attention_config.backend": "FLASH_ATTN",
            "cudagraph_capture_sizes": [1, 2],
            "max_loras": None,
        }
    )
    assert flags["--max-num-seqs"] == "64"
    assert flags["--max-model-len"] == "4k"
    assert flags["--enforce-eager"] == ""
    assert "--no-enable-prefix-caching" in flags
    assert flags["--compilation-config"] == '{"level": 3}'
    assert flags["--attention-config.backend"] == "FLASH_ATTN"
    assert flags["--cudagraph-capture-sizes"] == "1 2"
    assert "--max-loras" not in flags


@pytest.mark.parametrize(
    ("vllm", "why"),
    [
        ({"gpu_memory_utilization": 0.9}, "set gpus.memory_share instead"),
        ({"tool-call-parser": "x"}, "leave it out"),
        ({"logprobs_mode": "raw_logprobs"}, "leave it out"),
        ({"host": "0.0.0.0"}, "leave it out"),
        ({"port": "high"}, "vllm.port = 'high': a port is a number"),
        ({"port": 70000}, "a port is a number from 1 to 65535"),
    ],
)
def test_a_flag_that_cannot_be_meant_is_refused(vllm: dict[str, Any], why: str) -> None:
    assert why in refused(vllm=vllm)


def test_a_private_run_logs_no_requests() -> None:
    for name in ("enable_log_requests", "enable_log_outputs"):
        said = refused(private=True, vllm={name: True})
        assert "private = true keeps texts out of files" in said
    usual, kept = (TrainingConfig.create(engine="vllm", private=p) for p in (0, 1))
    logs = {"VLLM_LOGGING_LEVEL": "INFO", "VLLM_DEBUG_LOG_API_SERVER_RESPONSE": "0"}
    assert variables(kept).items() - variables(usual).items() == logs.items()


def test_only_adapters_are_trained() -> None:
    assert "choose --engine local or verl" in refused(lora_rank=0)
    assert "rank 512 at most" in refused(lora_rank=600)
    assert made()["--max-lora-rank"] == "16"  # of nano too


def test_what_is_shown_is_what_a_shell_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    config = TrainingConfig.create(
        engine="vllm", model="a/b", vllm={"hf_overrides": {"a": "b c"}}
    )
    told = shown(config, "/x/vllm")
    words = shlex.split(told.replace("\\\n", ""))
    at = words.index("/x/vllm")
    assert words[at:] == command_line(config, "/x/vllm", "PORT")
    assert dict(word.split("=") for word in words[:at]) == variables(config)


@pytest.mark.parametrize(
    ("given", "there", "found"),
    [
        (None, ["nvidia1", "nvidia0", "nvidiactl"], ["0", "1"]),
        ("2, GPU-5", ["nvidia0"], ["2", "GPU-5"]),
        ("", ["nvidia0"], []),
        ("-1", ["nvidia0"], []),
        ("0", [], []),
    ],
)
def test_gpus_are_those_that_this_process_may_use(
    given: str | None,
    there: list[str],
    found: list[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    for name in there:
        (tmp_path / name).touch()
    monkeypatch.setattr(settings, "_DEVICES", tmp_path)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if given is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
    assert settings.visible_gpus() == found
