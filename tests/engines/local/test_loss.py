"""The loss with shared prefixes equals the plain one, sequence by sequence."""

import math
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import torch

from agentgym.core.components import OUTPUT
from agentgym.engines.base import TrainedToken, TrainingSequence
from agentgym.engines.local import loss as loss_module
from agentgym.engines.local.covered import GrammarMasks
from agentgym.engines.local.loading import load_model
from agentgym.engines.local.loss import PolicyLoss, ReferencePolicy, TokenStatistics
from agentgym.engines.local.model import LoadedModel
from agentgym.engines.local.prefix_tree import plant
from agentgym.train.batch import BatchBuilder
from tests.engines.local.rollouts import TRAINABLE, broadcast, random_groups

CLIP, ENTROPY, TEMPERATURE = (0.2, 0.28), 0.05, 0.8


@pytest.fixture
def loaded(model_folder: Path) -> LoadedModel:
    return load_model(str(model_folder), device="cpu", rank=0, seed=0)


def sequences(loaded: LoadedModel, seed: int = 0) -> list[TrainingSequence]:
    groups = random_groups(seed, 300)
    builder = BatchBuilder(
        algorithm="rloo",
        trainable={**TRAINABLE, "output_generation": True},
        label=lambda call: [OUTPUT] * len(call.response_ids),
        failure_cost=0.0,
    )
    return builder.build(groups, broadcast).batch.sequences


def plain_gradients(
    loaded: LoadedModel,
    found: list[TrainingSequence],
    total: int | None = None,
    reference: torch.nn.Module | None = None,
    coefficient: float = 0.0,
) -> tuple[float, list[torch.Tensor]]:
    """PPO's dually clipped loss as the papers write it, one sequence at a time.

    With GRPO's penalty on the distance from a reference, if one is given.
    """
    total = total or sum(len(s.trained) for s in found)
    loaded.model.zero_grad()
    policy_loss = 0.0
    for sequence in found:
        logits = loaded.model(torch.tensor([sequence.ids])).logits[0]
        logprobs = torch.log_softmax(logits / TEMPERATURE, -1)
        objective = torch.zeros(())
        if reference is not None:
            with torch.no_grad():
                logits = reference(torch.tensor([sequence.ids])).logits[0]
            referred = torch.log_softmax(logits / TEMPERATURE, -1)
            for token in sequence.trained:
                place = token.position - 1, sequence.ids[token.position]
                share = (referred[place] - logprobs[place]).exp()
                objective = objective + coefficient * (share - share.log() - 1)
        for token in sequence.trained:
            before = logprobs[token.position - 1]
            ratio = (before[sequence.ids[token.position]] - token.logprob).exp()
            clipped = ratio.clamp(1 - CLIP[0], 1 + CLIP[1])
            gain = torch.minimum(ratio * token.advantage, clipped * token.advantage)
            if token.advantage < 0:
                gain = torch.maximum(gain, torch.tensor(3 * token.advantage))
            loss = -gain
            policy_loss += loss.item()
            objective = objective + loss + ENTROPY * (before.exp() * before).sum()
        (objective / total).backward()
    gradients = [p.grad.clone() for _, p in loaded.trained_parameters()]
    loaded.model.zero_grad()
    return policy_loss, gradients


def require_gradients(loaded: LoadedModel, expected: list[torch.Tensor]) -> None:
    largest = max(float(gradient.abs().max()) for gradient in expected)
    named = loaded.trained_parameters()
    for (name, parameter), gradient in zip(named, expected, strict=True):
        difference = float((parameter.grad - gradient).abs().max())
        assert difference < 1e-5 * max(1.0, largest), name


@pytest.mark.parametrize(
    ("chunk_tokens", "cores", "most_nodes"),
    [(4096, 1, 1536), (64, 1, 1536), (64, 3, 1536), (4096, 1, 60)],
)
@pytest.mark.parametrize("seed", [0, 1])
def test_gradients_with_shared_prefixes_equal_plain_ones(
    loaded: LoadedModel, seed: int, chunk_tokens: int, cores: int, most_nodes: int
) -> None:
    found = sequences(loaded, seed)
    expected_loss, expected = plain_gradients(loaded, found)
    loss = PolicyLoss(replace(loaded, cores=cores), CLIP, ENTROPY, TEMPERATURE)
    loss.chunk_tokens = chunk_tokens
    (forest,) = plant(found, most_nodes)

    total = sum(len(s.trained) for s in found)
    sums = loss.backward(forest, total)

    assert len(forest.head) == 40
    assert (len(forest.trees) > 3) == (most_nodes < 100)
    nodes = sum(map(len, forest.trees))
    assert nodes < 0.9 * sum(len(s.ids) - 40 for s in found), "nothing was shared"
    assert sums.tokens == total
    assert sums.loss == pytest.approx(expected_loss, rel=1e-4)
    require_gradients(loaded, expected)


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 4])
@pytest.mark.parametrize("cores", [1, 3])
def test_the_distance_from_the_untrained_policy_is_penalised(
    model_folder: Path, rank: int, cores: int
) -> None:
    def load(rank: int) -> LoadedModel:
        return load_model(str(model_folder), device="cpu", rank=rank, seed=0)

    trained, untrained = load(rank), load(0)
    loss = PolicyLoss(
        replace(trained, cores=cores),
        CLIP,
        ENTROPY,
        TEMPERATURE,
        reference=ReferencePolicy(trained, 0.3),
    )
    loss.chunk_tokens = 64
    torch.manual_seed(1)
    with torch.no_grad():
        for _, parameter in trained.trained_parameters():
            parameter.add_(torch.randn_like(parameter) * 0.03)
    found = sequences(trained)
    total = sum(len(s.trained) for s in found)
    _, free = plain_gradients(trained, found)
    _, expected = plain_gradients(trained, found, None, untrained.model, 0.3)
    [forest] = plant(found, 1536)
    sums = loss.backward(forest, total)

    assert sums.away > 0.01 * total
    moved = max(float((a - b).abs().max()) for a, b in zip(free, expected, strict=True))
    scale = max(float(g.abs().max()) for g in expected)
    assert moved > 1e-2 * scale, "the penalty changes nothing"
    require_gradients(trained, expected)


def mean_ratios(loaded: LoadedModel, found: list[TrainingSequence]) -> list[float]:
    """The geometric mean of the ratios of each sequence's trained tokens."""
    ratios = []
    for sequence in found:
        with torch.no_grad():
            logits = loaded.model(torch.tensor([sequence.ids])).logits[0]
        logprobs = torch.log_softmax(logits / TEMPERATURE, -1)
        apart = [
            float(logprobs[t.position - 1, sequence.ids[t.position]]) - t.logprob
            for t in sequence.trained
        ]
        ratios.append(math.exp(sum(apart) / len(apart)))
    return ratios


@pytest.mark.parametrize(("chunk_tokens", "cores"), [(4096, 1), (64, 3)])
@pytest.mark.parametrize("power", [-3, 3])
def test_sequences_far_from_their_sampling_leave_the_gradient_to_the_others(
    loaded: LoadedModel, power: int, chunk_tokens: int, cores: int
) -> None:
    """Their first tokens are those of others too, which still count once."""
    found = sequences(loaded)
    limit = 1.5 * max(max(r, 1 / r) for r in mean_ratios(loaded, found))
    for sequence in found[::3]:
        sequence.trained = [
            replace(token, logprob=token.logprob - power * math.log(limit))
            for token in sequence.trained
        ]
    means = mean_ratios(loaded, found)
    near = [s for s, r in zip(found, means, strict=True) if 1 / limit < r < limit]
    assert 0 < len(near) < len(found)
    total = sum(len(s.trained) for s in found)
    expected_loss, expected = plain_gradients(loaded, near, total)

    made = replace(loaded, cores=cores)
    loss = PolicyLoss(made, CLIP, ENTROPY, TEMPERATURE, limit)
    loss.chunk_tokens = chunk_tokens
    [forest] = plant(found, 1536)
    sums = loss.backward(forest, total)
    ratios = loss.take_ratios()

    assert ratios is not None
    left_out = set(map(id, ratios.far_off))
    assert left_out == set(map(id, found)) - set(map(id, near))
    assert sums.tokens == total
    assert sums.loss == pytest.approx(expected_loss, rel=1e-4)
    require_gradients(loaded, expected)
    assert loss.take_ratios() is None


def test_agents_of_a_team_have_heads_of_their_own(loaded: LoadedModel) -> None:
    found = sequences(loaded)
    for sequence in found[::2]:
        sequence.agent = "reviewer"
        sequence.ids = [5] * 30 + sequence.ids[30:]
    expected_loss, expected = plain_gradients(loaded, found)
    loss = PolicyLoss(loaded, CLIP, ENTROPY, TEMPERATURE)
    total = sum(len(s.trained) for s in found)

    forests = plant(found, 1536)
    sums = [loss.backward(forest, total) for forest in forests]

    assert [f.head[0] == 5 for f in forests] == [True, False]
    assert sum(s.loss for s in sums) == pytest.approx(expected_loss, rel=1e-4)
    require_gradients(loaded, expected)


def test_attempts_share_the_tokens_of_their_task() -> None:
    """A tree is charged the nodes that a sequence adds, not the length of it."""
    found = []
    for task in range(8):
        for attempt in range(8):
            own = [100 * task + attempt] * 300
            trained = [TrainedToken(at, -1.0, 1.0) for at in (800, 1099)]
            ids = [task] * 800 + own
            found.append(TrainingSequence("agent", task, ids, trained))

    (roomy,) = plant(found, 4096)
    (small,) = plant(found, 1024)

    assert [len(tree) for tree in roomy.trees] == [800 + 8 * 299] * 8
    assert [len(tree) for tree in small.trees] == [1099] * 64
    (few,) = plant(found, 800 + 3 * 299)
    assert {len(tree.sequences) for tree in few.trees} == {3, 2}
    assert all(len(tree) <= 800 + 3 * 299 for tree in few.trees)


@pytest.mark.parametrize("rank", [0, 4])
@pytest.mark.parametrize("floats", [2**26, 300 * 7])
def test_layers_and_logits_computed_twice_give_the_same_gradients(
    model_folder: Path, rank: int, floats: int
) -> None:
    found: list[dict[str, torch.Tensor]] = []
    sums = []
    for recompute, kept in ((False, 0), (True, 0), (True, 105)):
        loaded = load_model(
            str(model_folder), device="cpu", rank=rank, seed=0, recompute=recompute
        )
        loaded = replace(loaded, cores=1, kept_tokens=kept)
        for _, parameter in loaded.trained_parameters():
            if rank:
                torch.manual_seed(parameter.numel())
                torch.nn.init.normal_(parameter, std=0.1)
        loss = PolicyLoss(loaded, CLIP, ENTROPY, TEMPERATURE)
        if recompute:
            loss.predicted_floats = floats
        (forest,) = plant(sequences(loaded), 1536)
        sums.append(loss.backward(forest, 100))
        named = loaded.trained_parameters()
        found.append({n: p.grad for n, p in named if p.grad is not None})
        assert len(found[-1]) == len(named)
        assert len(loaded.recomputed) == (2 if recompute else 0)
        assert not any("forward" in vars(layer) for layer in loaded.recomputed)

    scale = max(float(g.abs().max()) for g in found[0].values())
    for each, again in zip(sums[1:], found[1:], strict=True):
        assert sums[0] == pytest.approx(each, rel=1e-5)
        for name, gradient in found[0].items():
            assert float((gradient - again[name]).abs().max()) < 1e-6 * max(1, scale)


@pytest.mark.parametrize("kept", [0, 105, 4096])
def test_only_micro_batches_above_the_limit_have_their_layers_computed_again(
    model_folder: Path, kept: int
) -> None:
    loaded = load_model(str(model_folder), device="cpu", rank=0, seed=0, recompute=True)
    loaded = replace(loaded, cores=1, kept_tokens=kept)
    passes: list[int] = []

    def count(*given: Any) -> None:
        passes.append(given[2]["hidden_states"].shape[1])

    attention = next(loaded.recomputed[0].children())
    attention.register_forward_hook(count, with_kwargs=True)
    loss = PolicyLoss(loaded, CLIP, ENTROPY, TEMPERATURE)
    (forest,) = plant(sequences(loaded), 1536)
    loss.backward(forest, 100)

    head = len(forest.head)
    again = {size: len([*each]) > 1 for size, each in groupby(passes) if size != head}
    assert again == {size: head + size > kept for size in again}
    assert set(again.values()) == {0: {True}, 105: {True, False}, 4096: {False}}[kept]
    assert passes.count(head) == (1 if kept else 2)


@pytest.mark.parametrize(("behind", "moves"), [(0.5, True), (5.0, False)])
def test_a_bad_token_that_has_become_far_likelier_does_not_own_the_step(
    loaded: LoadedModel, behind: float, moves: bool
) -> None:
    """Its loss is that of a ratio of 3 at most, which no weight changes."""
    ids = [5, 6, 7, 8]
    with torch.no_grad():
        now = torch.log_softmax(loaded.model(torch.tensor([ids])).logits[0, 2], -1)[8]
    token = TrainedToken(3, float(now) - behind, -1.0)
    loss = PolicyLoss(loaded, CLIP, 0.0, 1.0)
    [forest] = plant([TrainingSequence("agent", 0, ids, [token])], 1536)
    sums = loss.backward(forest, 1)
    expected = min(3.0, torch.tensor(behind).exp().item())
    assert sums.loss == pytest.approx(expected, rel=1e-3)
    found = [
        p.grad.abs().max() for _, p in loaded.trained_parameters() if p.grad is not None
    ]
    assert (max(found, default=torch.zeros(())) > 0) == moves


@pytest.mark.parametrize("cached", [2**20, 2 * 50])
def test_log_probabilities_and_entropies_have_the_gradients_of_their_formulas(
    monkeypatch: pytest.MonkeyPatch, cached: int
) -> None:
    monkeypatch.setattr(loss_module, "_CACHED", cached)
    torch.manual_seed(0)
    logits, tokens = 3 * torch.randn(7, 50), torch.randint(8, 50, (7,))
    allowed = torch.full((2, 7), 255, dtype=torch.uint8)
    allowed[:, 0] = torch.tensor([0, 85])  # the tokens 0 to 7: none, every second
    held = GrammarMasks(allowed, torch.tensor([-1, 0, -1, 1, 0, -1, -1]))
    weights = torch.randn(2, 7)

    def formulas(logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        logprobs = torch.log_softmax(held.hide(logits / TEMPERATURE), -1)
        entropy = -(logprobs.exp() * logprobs).sum(-1)
        return logprobs.gather(-1, tokens[:, None])[:, 0], entropy

    def at_once(logits: torch.Tensor) -> Any:
        return TokenStatistics.apply(logits, tokens, held, TEMPERATURE)

    made = []
    for compute in (formulas, at_once):
        given = logits.clone().requires_grad_()
        found = torch.stack(compute(given))
        (found * weights).sum().backward()
        made.append((found.detach(), given.grad))
    torch.testing.assert_close(made[1], made[0])
