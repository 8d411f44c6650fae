"""Models of other architectures: packed tokens where layers allow it, else plainly."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForImageTextToText

from agentgym.core.components import OUTPUT
from agentgym.core.config import TrainingConfig
from agentgym.engines.base import TrainedToken, TrainingSequence
from agentgym.engines.local.decoding.plain import PlainDecoder
from agentgym.engines.local.loading import load_model
from agentgym.engines.local.loss import LossSums, PolicyLoss
from agentgym.engines.local.memory_measurement import measure
from agentgym.engines.local.model import LoadedModel
from agentgym.engines.local.policy import LocalPolicy
from agentgym.engines.local.shape import Shape, Use
from agentgym.engines.local.support import LocalEngines
from agentgym.engines.memory import MemoryEstimate
from agentgym.errors import ModelError
from agentgym.train.batch import BatchBuilder
from tests.engines.allocations import peak
from tests.engines.local.architectures import (
    PACKED,
    PLAIN,
    TEXT_OF,
    continued,
    engine_of,
    recomputed,
    request,
    save,
    train_step,
)
from tests.engines.local.rollouts import TRAINABLE, broadcast, chat, random_groups


def config(folder: Path, **settings: Any) -> TrainingConfig:
    return TrainingConfig.create(model=str(folder), gpu="none", **settings)


def plainly(loaded: LoadedModel) -> LoadedModel:
    """Return the same model on the plain path."""
    return replace(loaded, traits=replace(loaded.traits, obstacles=("a test",)))


@pytest.fixture(scope="module")
def loaded(model_folder: Path) -> LoadedModel:
    return load_model(str(model_folder), device="cpu", rank=4, seed=0)


@pytest.fixture
def policies(loaded: LoadedModel) -> Iterator[list[LocalPolicy]]:
    """Return policies of one model: packed, plain, and plain without kept caches."""
    plain = plainly(loaded)
    made = [LocalPolicy(loaded), LocalPolicy(plain)]
    made.append(LocalPolicy(plain, deterministic=True))
    yield made
    for policy in made:
        policy.close()


@pytest.mark.slow
def test_both_paths_sample_the_same(policies: list[LocalPolicy]) -> None:
    """Through shared prompts, kept heads and continued sessions."""
    requests = [request(i // 3, i, session=f"s{i}", tokens=12) for i in range(6)]
    for _ in range(3):
        packed, *plain = [chat(policy, requests) for policy in policies]
        for results in plain:
            for one, other in zip(packed, results, strict=True):
                assert one.response_ids == other.response_ids
                assert one.finish_reason == other.finish_reason
                found, expected = map(torch.tensor, (other.logprobs, one.logprobs))
                assert torch.allclose(found, expected, atol=1e-4)
        requests = list(map(continued, requests, packed))
    decoder = policies[1].decoder
    assert isinstance(decoder, PlainDecoder)
    assert len(decoder._store._entries) > 6, "nothing was kept"
    assert decoder.between_responses(lambda: len(decoder._store._entries)) == 0


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 4])
@pytest.mark.parametrize(("cores", "recompute"), [(1, False), (3, True)])
def test_both_paths_have_the_same_losses_and_gradients(
    model_folder: Path, rank: int, cores: int, recompute: bool
) -> None:
    builder = BatchBuilder(
        algorithm="rloo",
        trainable={**TRAINABLE, "output_generation": True},
        label=lambda call: [OUTPUT] * len(call.response_ids),
        failure_cost=0.0,
    )
    sequences = builder.build(random_groups(0, 300), broadcast).batch.sequences
    found: list[tuple[LossSums, dict[str, torch.Tensor]]] = []
    for is_plain in (False, True):
        model = load_model(
            str(model_folder), device="cpu", rank=rank, seed=0, recompute=recompute
        )
        model = replace(plainly(model) if is_plain else model, cores=cores)
        loss = PolicyLoss(model, (0.2, 0.2), 0.05, 0.8)
        (forest,) = loss.plant(sequences)
        assert (len(forest.trees) == len(sequences)) == is_plain
        sums = loss.backward(forest, 100)
        grads = {n: p.grad for n, p in model.trained_parameters() if p.grad is not None}
        found.append((sums, grads))

    (packed, expected), (plain, gradients) = found
    assert plain == pytest.approx(packed, rel=1e-4)
    assert gradients.keys() == expected.keys() != set()
    scale = max(float(g.abs().max()) for g in expected.values())
    for name, gradient in expected.items():
        difference = float((gradients[name] - gradient).abs().max())
        assert difference < 1e-5 * max(1.0, scale), name


@pytest.mark.slow
def test_a_model_of_text_and_images_with_windows_trains_and_loads_again(
    tmp_path: Path,
) -> None:
    folder = save("gemma3", tmp_path / "model")

    summary = LocalEngines().check(config(folder))

    assert summary.path == (
        "plain, because of sliding-window attention; one sequence at a time, several "
        "times slower"
    )
    assert "GiB: weights 0.00, " in summary.memory
    assert LocalEngines().paced(config(folder)).concurrency == 4
    assert LocalEngines().paced(config(folder, concurrency=9)).concurrency == 9
    check_training(folder, tmp_path / "export", "plain")
    adapted = PeftModel.from_pretrained(
        AutoModelForImageTextToText.from_pretrained(folder), str(tmp_path / "export")
    )
    prompt = torch.arange(5, 45)[None]
    again = load_model(str(tmp_path / "export"), device="cpu", rank=None, seed=0)
    assert torch.allclose(
        adapted(input_ids=prompt).logits, again.model(prompt).logits, atol=1e-4
    )


def check_training(folder: Path, out: Path, path: str) -> None:
    """Train two steps, and check what was sampled, trained, exported and estimated."""
    engine = engine_of(folder)
    loaded = engine._loaded
    try:
        assert ("packed" if loaded.traits.is_packed else "plain") == path
        before = {n: p.detach().clone() for n, p in loaded.model.named_parameters()}
        for _ in range(2):
            metrics = train_step(engine)
            assert not metrics.refused
            assert 0 < metrics.grad_norm < 1e4
            assert metrics.logprob_gap < 1e-4, (
                "the learner recomputes other log-probabilities"
            )
        changed = {
            name
            for name, parameter in loaded.model.named_parameters()
            if not torch.equal(before[name], parameter)
        }
        assert {name for name, _ in loaded.trained_parameters()} == changed
        (result,) = chat(engine.policy, [request(0, 7)])
        assert len(result.prompt_ids) > 100, "longer than the windows"
        logprobs = torch.tensor(result.logprobs)
        assert torch.allclose(recomputed(loaded, result), logprobs, atol=1e-3)
        engine.export(out)
    finally:
        engine.close()
    policy = LocalPolicy.load(out)
    try:
        (again,) = chat(policy, [request(0, 7)])
        assert again.response_ids == result.response_ids
        assert torch.allclose(torch.tensor(again.logprobs), logprobs, atol=1e-3)
    finally:
        policy.close()
    shape = measure(str(folder), folder)
    trained = sum(p.numel() for _, p in loaded.trained_parameters())
    assert shape.adapter_parameters(2) == trained
    assert shape.parameters == loaded.model.num_parameters() - trained
    assert shape.cache_token == loaded.traits.growing
    assert shape.obstacles == loaded.traits.obstacles


@pytest.mark.sweep
@pytest.mark.parametrize("kind", [*PACKED, *PLAIN, *TEXT_OF])
def test_every_architecture_trains_two_steps(kind: str, tmp_path: Path) -> None:
    folder = save(kind, tmp_path / "model")
    check_training(folder, tmp_path / "export", "packed" if kind in PACKED else "plain")


@pytest.mark.sweep
@pytest.mark.parametrize("kind", ["gemma3", "qwen3_5", "gpt_oss"])
def test_all_weights_are_trained_and_load_as_they_came(
    kind: str, tmp_path: Path
) -> None:
    folder = save(kind, tmp_path / "model")
    engine = engine_of(folder, lora_rank=0)
    assert train_step(engine).grad_norm > 0
    (result,) = chat(engine.policy, [request(0, 7)])
    engine.export(tmp_path / "export")
    engine.close()

    settings = [
        json.loads((f / "config.json").read_text())
        for f in (folder, tmp_path / "export")
    ]
    assert settings[0]["architectures"] == settings[1]["architectures"]
    again = load_model(str(tmp_path / "export"), device="cpu", rank=None, seed=0)
    assert torch.allclose(
        recomputed(again, result), torch.tensor(result.logprobs), atol=1e-3
    )


@pytest.mark.slow
@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("kind", ["mistral", "gemma2", "qwen3_5_text", "gpt_oss"])
def test_a_plain_update_stays_within_its_estimate(
    kind: str, recompute: bool, tmp_path: Path
) -> None:
    folder = save(kind, tmp_path, num_hidden_layers=4, layer_types=None)
    loaded = load_model(str(folder), device="cpu", rank=2, seed=0, recompute=recompute)
    longest = 1024
    estimate = MemoryEstimate.of(
        measure(kind, folder), Use(2, recomputes=recompute, longest=longest)
    )
    loss = PolicyLoss(replace(loaded, cores=1), (0.2, 0.2), 0.0, 1.0)
    trained = [TrainedToken(p, -5.0, 1.0) for p in range(1, longest)]
    ids = [7 + n % 250 for n in range(longest)]
    (forest,) = loss.plant([TrainingSequence("agent", 0, ids, trained)] * 2)

    taken = peak(lambda: loss.backward(forest, 1000))

    assert taken <= estimate.activations <= 4 * taken


def test_measuring_and_counting_agree(model_folder: Path) -> None:
    counted = Shape.of(json.loads((model_folder / "config.json").read_text()))
    measured = measure("it", model_folder)

    assert counted is not None
    assert measured.obstacles == ()
    assert measured.parameters == counted.parameters
    assert measured.linear_parameters == counted.linear_parameters
    assert measured.adapter_parameters(3) == counted.adapter_parameters(3)
    assert measured.cache_token == counted.cache_token
    for rank, size in ((0, 4), (3, 2)):
        for one, other in zip(
            measured.kept(1000, rank, size), counted.kept(1000, rank, size), strict=True
        ):
            assert 0.5 < one / other < 2


def test_a_model_that_cannot_be_computed_is_refused_at_the_plan(
    model_folder: Path, tmp_path: Path
) -> None:
    settings = json.loads((model_folder / "config.json").read_text())
    for changes, message in (
        ({"model_type": "nonesuch"}, "it is not in transformers .* newer"),
        ({"model_type": "t5"}, "'t5'.* does not continue text"),
        ({"model_type": "rwkv"}, "'rwkv'.* keeps nothing in a cache"),
        ({"model_type": "minimax"}, "'minimax'.* cannot be run"),
        ({"model_type": "gemma2", "hidden_size": "wide"}, "hidden_size"),
    ):
        folder = tmp_path / changes["model_type"]
        save_settings(model_folder, folder, {**settings, **changes})
        for refuse in (LocalEngines().check, LocalEngines().create):
            with pytest.raises(ModelError, match=message):
                refuse(config(folder))


def save_settings(source: Path, folder: Path, settings: dict[str, Any]) -> None:
    """Write a model's folder with other settings, and without weights."""
    folder.mkdir()
    for path in source.iterdir():
        if path.suffix in (".json", ".jinja"):
            (folder / path.name).write_text(path.read_text())
    (folder / "config.json").write_text(json.dumps(settings))


@pytest.mark.slow
def test_experts_are_left_as_they_are_and_the_plan_says_so(tmp_path: Path) -> None:
    folder = save("qwen3_moe", tmp_path)

    assert LocalEngines().check(config(folder)).path == (
        "an adapter leaves the experts themselves as they are"
    )
    assert LocalEngines().check(config(folder, lora_rank=0)).path == ""
    loaded = load_model(str(folder), device="cpu", rank=2, seed=0)
    assert not any("mlp" in name for name, _ in loaded.trained_parameters())
