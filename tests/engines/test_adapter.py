"""Sampling goes through a copy of the model, learning through the adapter."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from agentgym.core.config import TrainingConfig
from agentgym.core.policy import ChatRequest
from agentgym.engines.adapter import SamplingCopy
from agentgym.engines.base import MOST_GAP, TrainedToken, TrainingBatch
from agentgym.engines.base import TrainingSequence as Sequence
from agentgym.engines.local.engine import LocalEngine
from agentgym.engines.local.loading import load_model
from agentgym.engines.local.loss import PolicyLoss
from agentgym.engines.local.policy import LocalPolicy
from agentgym.engines.local.support import LocalEngines
from agentgym.errors import UnsupportedError
from tests.engines.local.rollouts import TOOLS, by_parity, chat

Make = Callable[..., LocalEngine]


@pytest.fixture
def make(model_folder: Path) -> Iterator[Make]:
    made: list[LocalEngine] = []

    def make_engine(**settings: Any) -> LocalEngine:
        given = {"model": str(model_folder), "gpu": "none", "lora_rank": 4}
        config = TrainingConfig.create(**{**given, "learning_rate": 2e-2, **settings})
        made.append(LocalEngine.create(config))
        return made[-1]

    yield make_engine
    for engine in made:
        engine.close()


def requests(engine: LocalEngine) -> list[ChatRequest]:
    return [
        ChatRequest(
            messages=[{"role": "user", "content": f"look up {i}"}],
            tools=TOOLS,
            seed=i + 100 * engine.step,
            max_tokens=16,
        )
        for i in range(12)
    ]


def sampled(engine: LocalEngine) -> TrainingBatch:
    asked = requests(engine)
    return by_parity(chat(engine.policy, asked), asked)


@pytest.mark.slow
@pytest.mark.parametrize(("precision", "most"), [("float32", 1e-5), ("bf16", 0.03)])
def test_sampled_log_probabilities_are_the_learners_after_every_update(
    make: Make, precision: str, most: float
) -> None:
    engine = make(precision=precision)
    gaps, far = [], 0.0
    for _ in range(6):
        found = sampled(engine)
        gaps.append(engine.update(found).logprob_gap)
        adapter = engine._loaded.adapter
        assert adapter is not None
        with adapter.disable_adapter():  # what a sampler without it would give
            far = engine.update(found).logprob_gap

    assert max(gaps) < most < MOST_GAP
    assert far > 10 * most, "the adapter makes no difference"


@pytest.mark.parametrize("precision", ["float32", "bf16"])
def test_a_layer_to_sample_from_adds_the_adapter_to_its_weights(
    model_folder: Path, precision: Any
) -> None:
    loaded = load_model(
        str(model_folder), device="cpu", rank=4, seed=0, precision=precision
    )
    for _, parameter in loaded.trained_parameters():
        torch.nn.init.normal_(parameter, std=0.1)
    sampler = SamplingCopy(loaded.model)
    plain = dict(sampler.model.named_modules())
    found = 0
    for name, layer in loaded.model.named_modules():
        if not hasattr(layer, "lora_A") or not name.endswith("_proj"):
            continue
        down, up = layer.lora_A["default"].weight, layer.lora_B["default"].weight
        assert (down.dtype, up.dtype) == (torch.float32, torch.float32)
        below = layer.base_layer.weight
        expected = below.double() + 2 * (up.double() @ down.double())
        states = torch.randn(8, below.shape[1], dtype=below.dtype)
        with torch.no_grad():
            made = plain[name](states)
        exact = states.double() @ expected.t()
        rounding = {"float32": 1e-6, "bf16": 2**-7}[precision]
        assert float((made.double() - exact).norm() / exact.norm()) < rounding
        assert torch.equal(made, layer(states)) or precision == "float32"
        is_merged = isinstance(plain[name], torch.nn.Linear)  # at no cost in a step
        assert is_merged is (precision == "float32")
        if not is_merged:
            assert plain[name].weight is below, "copied for nothing"
        found += 1
    assert found == 14
    shared = plain["model.embed_tokens"].weight
    assert shared is loaded.model.get_input_embeddings().weight  # type: ignore[union-attr]


@pytest.mark.parametrize("recompute", [False, True])
def test_an_adapter_in_bfloat16_learns_as_one_in_float32(
    model_folder: Path, recompute: bool
) -> None:
    """Gradients of its float32 weights, beside those of the same model in float32."""
    made: list[torch.Tensor] = []
    for precision in ("float32", "bf16"):
        loaded = load_model(
            str(model_folder),
            device="cpu",
            rank=4,
            seed=0,
            precision=precision,  # type: ignore[arg-type]
            recompute=recompute,
        )
        for _, parameter in loaded.trained_parameters():
            torch.manual_seed(parameter.numel())
            torch.nn.init.normal_(parameter, std=0.1)
        ids = list(range(3, 90, 2))
        trained = [TrainedToken(at, -5.0, 1.0) for at in range(10, len(ids))]
        loss = PolicyLoss(loaded, (0.2, 0.2), 0.0, 1.0)
        [forest] = loss.plant([Sequence("agent", 0, ids, trained)])
        loss.backward(forest, len(trained))
        grads = [p.grad for _, p in loaded.trained_parameters() if p.grad is not None]
        assert {g.dtype for g in grads} == {torch.float32}
        made.append(torch.cat([g.flatten() for g in grads]))

    exact, half = made
    assert float((exact - half).norm() / exact.norm()) < 0.1
    assert torch.cosine_similarity(exact, half, 0) > 0.995


@pytest.mark.slow
def test_a_policy_that_only_answers_has_its_adapter_merged_for_good(
    make: Make, tmp_path: Path
) -> None:
    engine = make()
    engine.update(sampled(engine))
    engine.export(tmp_path / "adapter")
    expected = chat(engine.policy, requests(engine))
    policy = LocalPolicy.load(tmp_path / "adapter", gpu="none")
    names = [name for name, _ in policy._loaded.model.named_modules()]
    ids = expected[0].prompt_ids + expected[0].response_ids
    states = policy._loaded.model(torch.tensor([ids])).logits[0].log_softmax(-1)
    policy.close()

    assert not [name for name in names if "lora" in name]
    start = len(expected[0].prompt_ids)
    for at, logprob in enumerate(expected[0].logprobs, start):
        assert float(states[at - 1, ids[at]]) == pytest.approx(logprob, abs=1e-4)


@pytest.mark.slow
def test_trained_weights_are_never_bfloat16(make: Make) -> None:
    with pytest.raises(UnsupportedError, match="precision = 'bf16' with all weights"):
        LocalEngines().check(make()._config.replaced(precision="bf16", lora_rank=0))
    engine = make(precision="bf16")
    dtypes = {p.requires_grad: p.dtype for p in engine._loaded.model.parameters()}
    assert dtypes == {True: torch.float32, False: torch.bfloat16}


@pytest.mark.gpu
def test_on_a_gpu_weights_below_an_adapter_are_bfloat16_and_merged(
    model_folder: Path,
) -> None:
    if not torch.cuda.is_bf16_supported(including_emulation=False):
        pytest.skip("this GPU has no bfloat16")
    config = TrainingConfig.create(
        model=str(model_folder), gpu="local", lora_rank=4, gradient_checkpointing=True
    )
    engine = LocalEngine.create(config)
    try:
        found = [engine.update(sampled(engine)) for _ in range(3)]
    finally:
        engine.close()
    assert engine._loaded.merges
    assert engine._loaded.cache_shape.dtype == torch.bfloat16
    assert max(metrics.logprob_gap for metrics in found) < MOST_GAP
    assert all(metrics.grad_norm > 0 for metrics in found)
