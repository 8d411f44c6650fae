"""What a model takes is told before it is loaded, and is what torch then takes."""

import json
import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from agentgym.core.config import TrainingConfig
from agentgym.engines import device, memory
from agentgym.engines.adapter import SamplingCopy
from agentgym.engines.local.decoding.kv_cache import BatchCache
from agentgym.engines.local.loading import load_model
from agentgym.engines.local.loss import PolicyLoss
from agentgym.engines.local.model import LoadedModel
from agentgym.engines.local.prefix_tree import plant
from agentgym.engines.local.shape import Shape, Use
from agentgym.engines.local.support import LocalEngines
from agentgym.engines.memory import MemoryEstimate, told_use
from agentgym.errors import ModelError, NotEnoughMemoryError
from agentgym.models.folder import count_parameters
from tests.engines.allocations import branching, peak
from tests.engines.conftest import make_tokenizer

QWEN = {
    "model_type": "qwen2",
    "hidden_size": 896,
    "intermediate_size": 4864,
    "num_hidden_layers": 24,
    "num_attention_heads": 14,
    "num_key_value_heads": 2,
    "vocab_size": 151936,
    "tie_word_embeddings": True,
    "max_position_embeddings": 32768,
}
SEVEN = {
    **QWEN,
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152064,
    "tie_word_embeddings": False,
}
TINY = {
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "tie_word_embeddings": True,
    "bos_token_id": None,
    "eos_token_id": 1,
    "pad_token_id": 0,
}


def shape_of(config: dict[str, Any]) -> Shape:
    shape = Shape.of(config)
    assert shape is not None
    return shape


@pytest.fixture
def make(tmp_path: Path) -> Callable[..., Path]:
    """Return what writes a tiny random model into a folder."""

    def making(kind: str = "qwen2", **changes: Any) -> Path:
        tokenizer = make_tokenizer()
        tokenizer.model_max_length = 8192
        tokenizer.save_pretrained(tmp_path)
        given = {"vocab_size": len(tokenizer), **TINY, **changes}
        torch.manual_seed(0)
        config = AutoConfig.for_model(kind, **given)
        AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
        return tmp_path

    return making


def told(folder: Path) -> Shape:
    return shape_of(json.loads((folder / "config.json").read_text()))


@pytest.mark.parametrize(
    ("kind", "changes"),
    [
        ("qwen2", {}),
        ("qwen2", {"tie_word_embeddings": False}),
        ("qwen3", {"head_dim": 32}),
        ("qwen3", {"head_dim": 16, "attention_bias": True}),
        ("llama", {}),
        ("llama", {"attention_bias": True, "mlp_bias": True, "head_dim": 24}),
        ("mistral", {"num_key_value_heads": 4, "sliding_window": None}),
    ],
)
def test_parameters_are_counted_as_torch_has_them(
    make: Callable[..., Path], kind: str, changes: dict[str, Any]
) -> None:
    folder = make(kind, **changes)
    loaded = load_model(str(folder), device="cpu", rank=3, seed=0)
    sizes = {n: p.numel() for n, p in loaded.model.named_parameters()}
    added = sum(size for name, size in sizes.items() if "lora_" in name)

    assert told(folder).parameters == sum(sizes.values()) - added
    assert told(folder).adapter_parameters(3) == added > 0
    assert count_parameters(folder) == told(folder).parameters


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_weights_adapter_optimizer_and_cache_are_what_torch_allocates(
    make: Callable[..., Path], precision: Any
) -> None:
    folder = make()
    loaded = load_model(str(folder), device="cpu", rank=4, seed=0, precision=precision)
    use = Use(4, is_half=precision == "bf16", longest=256)
    estimate = MemoryEstimate.of(told(folder), use)
    trained = [p for _, p in loaded.trained_parameters()]
    frozen = [p for p in loaded.model.parameters() if not p.requires_grad]
    optimizer = torch.optim.AdamW(trained)
    for parameter in trained:
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    moments = [
        optimizer.state[p][k] for p in trained for k in ("exp_avg", "exp_avg_sq")
    ]

    def size(tensors: Iterable[torch.Tensor]) -> int:
        return sum(tensor.nbytes for tensor in tensors)

    assert {p.dtype for p in trained} == {torch.float32}
    assert estimate.weights == size(frozen)
    assert estimate.adapter == size(trained)
    assert estimate.gradients == size(p.grad for p in trained if p.grad is not None)
    assert estimate.optimizer == size(moments)
    copied = {id(p): p for p in SamplingCopy(loaded.model).model.parameters()}
    for parameter in loaded.model.parameters():
        copied.pop(id(parameter), None)
    assert estimate.copies == size(copied.values())
    cache = BatchCache(loaded.cache_shape, 1, 256, loaded.device, 256)
    assert estimate.least_cache == cache._memory.nbytes


def test_all_weights_are_trained_with_their_gradients_and_moments(
    make: Callable[..., Path],
) -> None:
    folder = make("llama")
    loaded = load_model(str(folder), device="cpu", rank=0, seed=0)
    size = sum(p.nbytes for _, p in loaded.trained_parameters())
    estimate = MemoryEstimate.of(told(folder), Use(0, is_half=True))

    assert (estimate.weights, estimate.adapter) == (size, 0)
    assert (estimate.gradients, estimate.optimizer) == (size, 2 * size)


@pytest.mark.slow
@pytest.mark.parametrize(
    "vocabulary", [8_000, pytest.param(400, marks=pytest.mark.sweep)]
)
@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize(("rank", "precision"), [(0, "auto"), (4, "auto"), (4, "bf16")])
def test_an_update_stays_within_the_estimate_and_not_far_below(
    make: Callable[..., Path],
    rank: int,
    precision: Any,
    recompute: bool,
    vocabulary: int,
) -> None:
    longest = 1024
    folder = make(vocab_size=vocabulary, max_position_embeddings=longest)
    loaded = load_model(
        str(folder),
        device="cpu",
        rank=rank,
        seed=0,
        precision=precision,
        recompute=recompute,
    )
    use = Use(rank, precision == "bf16", recompute, longest)
    estimate = MemoryEstimate.of(told(folder), use)
    loss = PolicyLoss(replace(loaded, cores=1), (0.2, 0.2), 0.0, 1.0)
    (forest,) = plant(branching(longest), loss.tree_nodes)
    assert len(list(forest.chunks(loss.chunk_tokens))) > 1

    taken = peak(lambda: loss.backward(forest, 1000))
    learned = [p.grad for _, p in loaded.trained_parameters() if p.grad is not None]
    taken -= sum(gradient.nbytes for gradient in learned)

    assert taken <= estimate.activations <= 4 * taken


@pytest.fixture
def medium(make: Callable[..., Path]) -> Path:
    """Return a folder of a model that is not small, without its weights."""
    folder = make()
    (folder / "model.safetensors").unlink()
    (folder / "config.json").write_text(json.dumps(QWEN))
    return folder


@pytest.mark.parametrize(
    ("free", "has_half", "way"),
    [
        (200, False, (8192, 16384)),
        (24, False, (8192, 2048)),
        (19, False, (4096, 1024)),
        (8, False, (None, 0)),
        (48, True, (8192, 8192)),
        (14, True, (8192, 2048)),
        (None, True, (None, 0)),
    ],
)
def test_updates_are_as_fast_as_half_of_the_free_memory_allows(
    medium: Path,
    monkeypatch: pytest.MonkeyPatch,
    free: int | None,
    has_half: bool,
    way: tuple[int | None, int],
) -> None:
    bytes_free = None if free is None else free * memory.GIB
    monkeypatch.setattr(memory, "free_ram", lambda: bytes_free)
    monkeypatch.setattr(memory, "cpu_has_half", lambda: has_half)
    config = TrainingConfig.create(model=str(medium), gpu="none", max_tokens=256)
    nodes, kept = memory.roomy_use(config, "cpu")
    assert (nodes, kept) == way
    assert memory.roomy_use(config.replaced(deterministic=True), "cpu") == (None, 0)
    if free is not None:
        use = told_use(config, on_gpu=False, has_half=has_half)
        use = replace(use, nodes=nodes, kept=kept)
        need = MemoryEstimate.of(shape_of(QWEN), use).need
        text = memory.check_memory(config, "cpu")
        assert text.startswith(f"at most {memory.gib(need)} of ")
        assert nodes is None or need <= free * memory.GIB / 2


def test_what_was_chosen_and_small_models_stay(
    medium: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(memory, "free_ram", lambda: 200 * memory.GIB)
    config = TrainingConfig.create(model=str(medium), gradient_checkpointing=True)
    assert memory.roomy_use(config, "cpu") == (8192, 0)
    small = TrainingConfig.create(model="nano", gpu="none")
    assert memory.roomy_use(small, "cpu") == (None, 0)


def test_large_models_are_recomputed_unless_told_otherwise() -> None:
    unset, on, off = (
        MemoryEstimate.of(shape_of(QWEN), Use(16, recomputes=recomputes)).activations
        for recomputes in (None, True, False)
    )
    assert unset == on < off / 4


@pytest.fixture
def huge(model_folder: Path, tmp_path: Path) -> Path:
    """Return a folder of a model that fits no machine: its shape, no weights."""
    folder = tmp_path / "huge"
    shutil.copytree(model_folder, folder)
    (folder / "model.safetensors").unlink()
    config = {**SEVEN, "hidden_size": 28672, "num_hidden_layers": 200}
    (folder / "config.json").write_text(json.dumps(config))
    return folder


@pytest.mark.slow
def test_a_model_that_does_not_fit_is_refused_before_it_is_loaded(
    huge: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_model(*args: object, **kwargs: object) -> None:
        raise AssertionError("a model was loaded")

    monkeypatch.setattr(AutoModelForCausalLM, "from_pretrained", no_model)
    config = TrainingConfig.create(model=str(huge), gpu="none", lora_rank=0)
    for refuse in (LocalEngines().check, LocalEngines().create):
        with pytest.raises(NotEnoughMemoryError) as caught:
            refuse(config)
        text = str(caught.value)
        assert f"Training {str(huge)!r} takes up to " in text
        assert "this machine has " in text
        for part in ("weights", "activations", "KV cache of one rollout", "optimizer"):
            assert f"{part} " in text
        for setting in ("lora_rank = 16 (", "max_episode_tokens = 2048 ("):
            assert setting in text
        assert "gradient_checkpointing" not in text, "a large model has it already"
        assert text.endswith("or several GPUs with --engine verl.")


def test_a_small_model_is_not_refused_for_the_machines_many_cores(
    make: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    config = TrainingConfig.create(model=str(make("llama")), gpu="none", lora_rank=0)
    monkeypatch.setattr(memory, "usable_cores", lambda: 256)
    monkeypatch.setattr(memory, "free_ram", lambda: memory.GIB)
    assert memory.check_memory(config, "cpu").startswith("at most ")
    monkeypatch.setattr(memory, "free_ram", lambda: memory.GIB // 64)
    with pytest.raises(NotEnoughMemoryError):
        memory.check_memory(config, "cpu")


def test_a_gpu_is_asked_through_its_driver(
    make: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    driver = tools / "nvidia-smi"
    monkeypatch.setenv("PATH", str(tools), prepend=":")
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    folder = make()
    config = TrainingConfig.create(model=str(folder), lora_rank=4)

    driver.write_text("#!/bin/sh\necho '1000, 8.9'\necho '5, 7.0'\n")
    driver.chmod(0o755)
    assert device.free_gpu() == (1000 * 2**20, True)
    fits = memory.check_memory(config, "cuda")
    assert " of 0.98 GiB: weights 0.00, " in fits
    assert "CUDA 0.75" in fits
    assert "merged" not in fits, "it is left out if need be"

    driver.write_text("#!/bin/sh\necho '100, 7.5'\n")
    assert device.free_gpu() == (100 * 2**20, False)
    with pytest.raises(NotEnoughMemoryError, match="and the GPU has 0.10 GiB free"):
        memory.check_memory(config, "cuda")

    for broken in ("echo no devices were found", "exit 9", "echo"):
        driver.write_text(f"#!/bin/sh\n{broken}\n")
        assert device.free_gpu() == (None, False)
    assert memory.check_memory(config, "cuda").startswith("at most 0.")


def test_a_containers_limit_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = device.free_ram()
    assert plain is not None
    assert plain > 0
    monkeypatch.setattr(device, "_CONTAINER", tmp_path)
    (tmp_path / "memory.max").write_text("max\n")
    unlimited = device.free_ram()
    assert unlimited is not None
    assert unlimited > 10_000
    (tmp_path / "memory.max").write_text("9000\n")
    (tmp_path / "memory.current").write_text("5000\n")
    (tmp_path / "memory.stat").write_text("anon 10\ninactive_file 700\n")
    assert device.free_ram() == 4700


def test_of_a_model_that_is_not_here_nothing_is_said(
    model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(memory, "free_ram", lambda: 64 * memory.GIB)
    monkeypatch.setattr(memory, "cpu_has_half", lambda: False)
    config = TrainingConfig.create(model="someone/some-model", gpu="none")
    assert memory.check_memory(config, "cpu") == ""

    cached = tmp_path / "models--someone--some-model"
    (cached / "refs").mkdir(parents=True)
    (cached / "refs" / "main").write_text("abc")
    (cached / "snapshots" / "abc").mkdir(parents=True)
    (cached / "snapshots" / "abc" / "config.json").write_text(json.dumps(QWEN))
    assert "weights 1.8, a merged copy to sample from 1.3" in memory.check_memory(
        config, "cpu"
    )
    assert Shape.of({"model_type": "mamba"}) is None
    assert Shape.of({**QWEN, "model_type": "qwen2_moe"}) is None
    assert Shape.of({**QWEN, "num_attention_heads": 0}) is None


def test_an_adapters_base_is_what_is_loaded(
    make: Callable[..., Path], tmp_path: Path
) -> None:
    base = make()
    loaded: LoadedModel = load_model(str(base), device="cpu", rank=4, seed=0)
    assert loaded.adapter is not None
    adapter = tmp_path / "adapter"
    loaded.adapter.save_pretrained(str(adapter))

    def words(model: Path, rank: int) -> str:
        config = TrainingConfig.create(model=str(model), gpu="none", lora_rank=rank)
        return memory.check_memory(config, "cpu").partition(": ")[2]

    assert words(adapter, 0) == words(base, 4) != words(base, 0)


def test_an_index_says_what_its_shards_will_hold(make: Callable[..., Path]) -> None:
    folder = make()
    count = count_parameters(folder)
    (folder / "model.safetensors").rename(folder / "model-00001-of-00002.safetensors")
    index = {
        "metadata": {"total_parameters": 12345},
        "weight_map": {"a": "model-00001-of-00002.safetensors"},
    }
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert count_parameters(folder) == count
    index["weight_map"]["b"] = "model-00002-of-00002.safetensors"
    (folder / "model.safetensors.index.json").write_text(json.dumps(index))
    assert count_parameters(folder) == 12345

    (folder / "model.safetensors.index.json").write_text("{")
    with pytest.raises(ModelError, match="cannot be read"):
        count_parameters(folder)


def test_a_run_is_as_long_as_its_scenario_s_episodes(tmp_path: Path) -> None:
    def longest(**settings: Any) -> int:
        config = TrainingConfig.create(**settings)
        return told_use(config, on_gpu=False, has_half=False).longest

    usual = longest(scenario="coding")
    assert 1_000 < usual < 8_192
    assert longest(scenario="coding", max_tokens=500) == usual + 340 * 9
    assert longest(scenario="coding", max_episode_tokens=512) == 512
    assert longest(scenario=str(tmp_path / "none.py")) == 8_192
