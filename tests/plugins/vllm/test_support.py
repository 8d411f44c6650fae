"""What is refused before anything starts, and how the environment is looked at."""

import socket
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agentgym import Trainer
from agentgym.core.config import TrainingConfig
from agentgym.engines import environments
from agentgym.engines.registry import check_engine, composed_settings
from agentgym.errors import AgentGymError, UsageError
from agentgym.plugins.vllm import environment, settings
from agentgym.plugins.vllm.support import VllmEngines
from tests.plugins.vllm.conftest import CPU_VERSION, Played, make_environment
from tests.plugins.vllm.conftest import config as run_config


def refused(**changes: Any) -> str:
    with pytest.raises(AgentGymError) as error:
        check_engine(TrainingConfig.create(engine="vllm", **changes))
    assert error.value.exit_code == 2
    return str(error.value)


@pytest.mark.slow
def test_the_plan_says_who_is_on_which_gpu(played: Played) -> None:
    config = TrainingConfig.create(engine="vllm")
    found = check_engine(config)
    assert found.model == "nano (2.3M parameters, LoRA rank 16)"
    assert found.device == "one GPU, by turns with vLLM"
    two = check_engine(config.replaced(**{"gpus.per_node": 2}))
    assert two.device == "2 GPUs, vLLM on all but the first"


@pytest.mark.slow
def test_what_the_learner_takes_has_room_beside_vllm(
    played: Played, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = TrainingConfig.create(engine="vllm")
    assert check_engine(config).memory.startswith("at most ")
    driver = tmp_path / "bin" / "nvidia-smi"
    driver.parent.mkdir(exist_ok=True)
    driver.write_text("#!/bin/sh\necho '4000, 8.9'\n")
    driver.chmod(0o755)
    monkeypatch.setenv("PATH", str(driver.parent), prepend=":")
    told = check_engine(config).memory
    assert " of 3.9 GiB: weights 0.00, adapter" in told
    assert "sample from" not in told, "vLLM samples"
    assert "KV cache" not in told
    beside = refused(**{"gpus.memory_share": 0.9})
    assert "memory_share = 0.9 leaves 0.39 of the GPU's 3.9 GiB free" in beside
    assert "keeps 0.76 GiB while vLLM answers" in beside
    least = float(beside.partition("Set gpus.memory_share to ")[2].partition(" ")[0])
    assert check_engine(config.replaced(**{"gpus.memory_share": least})).memory == told
    alone = config.replaced(**{"gpus.per_node": 2, "gpus.memory_share": 0.9})
    assert check_engine(alone).memory == told
    driver.write_text("#!/bin/sh\necho '400, 8.9'\n")
    assert "and the GPU has 0.39 GiB free" in refused()


def test_without_an_environment_it_says_how_to_make_one() -> None:
    assert "agentgym engine install vllm" in refused()


def test_another_release_of_vllm_is_refused(own_home: Path) -> None:
    make_environment(own_home, "0.25.1")
    told = refused()
    assert "vLLM 0.25.1 is in" in told
    assert "works with 0.32" in told


def test_an_environment_without_the_command_is_refused(own_home: Path) -> None:
    (make_environment(own_home) / "bin" / "vllm").unlink()
    assert "bin/vllm is missing" in refused()


def test_gpus_that_are_not_there_are_refused(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "gpus.per_node = 3, and this machine has 2 NVIDIA" in refused(
        **{"gpus.per_node": 3, "gpus.tensor_parallel": 2}
    )
    monkeypatch.setattr(settings, "visible_gpus", list)
    told = refused()
    assert "this machine has no NVIDIA GPU" in told
    assert "--engine local" in told
    assert "agentgym engine install vllm --cpu" in told
    told = refused(gpu="none")
    assert "is built for GPUs" in told
    assert "agentgym engine install vllm --cpu" in told


def test_a_build_for_cpus_is_not_run_for_a_gpu(own_home: Path) -> None:
    make_environment(own_home, CPU_VERSION)
    assert "is built for CPUs: set --gpu none" in refused(gpu="local")


@pytest.mark.parametrize("gpu", ["none", "auto"])
def test_on_the_cpu_vllm_has_the_learners_precision_and_no_parser(
    own_home: Path, monkeypatch: pytest.MonkeyPatch, gpu: str
) -> None:
    make_environment(own_home, CPU_VERSION)
    monkeypatch.setattr(settings, "visible_gpus", list)
    config = TrainingConfig.create(engine="vllm", gpu=gpu)
    found = check_engine(config)
    assert found.device.startswith("CPU (")
    assert found.device.endswith("), shared with vLLM")
    assert "CUDA" not in found.memory
    command = composed_settings(config)
    assert command.startswith("VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 ")
    assert " CUDA_VISIBLE_DEVICES= VLLM_CPU_KVCACHE_SPACE=1 " in command
    for flag in ("dtype float32", "enforce-eager", "no-enable-chunked-prefill"):
        assert f"--{flag} " in command
    for word in ("sleep", "gpu-memory", "tensor-parallel", "parser", "tool-choice"):
        assert word not in command
    half = composed_settings(config.replaced(precision="bf16"))
    assert "--dtype bfloat16 " in half
    given = composed_settings(config.replaced(vllm={"max_model_len": "4k"}))
    assert "--max-num-batched-tokens 4k " in given


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"gpu": "none", "gpus.per_node": 2}, "gpus.per_node = 2 with gpu = 'none'"),
        ({"gpu": "none", "gpus.memory_share": 0.5}, "Set VLLM_CPU_KVCACHE_SPACE"),
        ({"gpu": "runpod"}, "gpu = 'runpod'"),
        ({"deterministic": True}, "is a setting of --engine local"),
        ({"model": "./nowhere"}, "No model is at"),
        ({"verl.nodes": 2}, "of --engine verl"),
        ({"verl.offload": True}, "of --engine verl"),
        ({"verl": {"a": 1}}, "of --engine verl"),
    ],
)
def test_what_cannot_be_meant_is_refused(
    played: Played, changes: dict[str, Any], why: str
) -> None:
    assert why in refused(**changes)


def test_a_port_in_use_is_refused_at_the_plan(played: Played, tmp_path: Path) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(UsageError, match=f"vllm.port = {port}: the port cannot"):
            Trainer(run_config(tmp_path, vllm={"port": port})).plan()
    assert played.seen() == []


def test_the_command_is_shown_with_and_without_an_environment(own_home: Path) -> None:
    config = TrainingConfig.create(engine="vllm", vllm={"port": 8123})
    assert " vllm serve " in VllmEngines().composed(config)
    place = make_environment(own_home)
    told = VllmEngines().composed(config)
    assert f" {place}/bin/vllm serve " in told
    assert "--port 8123" in told


@pytest.mark.slow
def test_a_check_starts_a_tiny_model_and_asks_it(
    played: Played, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = environments.Checked("GPUs", True, "one, 80 GB")
    monkeypatch.setattr(environments, "gpus", lambda: seen)
    site = environment.ENVIRONMENT.folder / "lib" / "python3.12" / "site-packages"
    for package in ("torch-2.13.0", "transformers-5.19.0"):
        (site / f"{package}.dist-info").mkdir()
    found = {finding.name: finding for finding in VllmEngines().examine()}
    assert [*found] == [
        *("vllm", "torch", "transformers", "imports", "GPUs", "memory", "ports"),
        "start",
    ]
    assert all(finding.is_good for finding in found.values()), found
    assert found["start"].text.startswith("nano answered, ")
    assert [line["model"] for line in played.seen("complete")] == ["agentgym-v0"]

    played.script(refuses="/v1/completions")
    *_, last = VllmEngines().examine()
    assert (last.name, last.is_good) == ("start", False)
    assert "500" in last.text
    assert "the worker has failed" in last.text
