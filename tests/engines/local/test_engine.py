"""The engine: it learns, it resumes bit for bit, it refuses what it cannot do."""

import asyncio
import json
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from agentgym.core.config import TrainingConfig
from agentgym.core.ledger import FAR_OFF, NOT_FINITE, TRAINED, Bucket
from agentgym.core.policy import ChatRequest, ChatResult
from agentgym.core.trajectory import ModelCall, Trajectory
from agentgym.engines.base import UpdateMetrics
from agentgym.engines.local.engine import LocalEngine
from agentgym.engines.local.policy import LocalPolicy
from agentgym.errors import CheckpointError
from agentgym.train.batch import credit_lines
from tests.engines.local.rollouts import TOOLS, call, credit, rollout

ALL = {"tool_selection": True, "parameter_selection": True, "output_generation": True}
Make = Callable[..., LocalEngine]


@pytest.fixture
def make(model_folder: Path) -> Iterator[Make]:
    made: list[LocalEngine] = []

    def make_engine(**settings: object) -> LocalEngine:
        given = {"model": str(model_folder), "gpu": "none", "lora_rank": 0}
        config = TrainingConfig.create(**{**given, **settings})
        made.append(LocalEngine.create(config))
        return made[-1]

    yield make_engine
    for engine in made:
        engine.close()


def play(engine: LocalEngine, groups: int = 4, size: int = 8) -> list[list[Trajectory]]:
    """Sample one response per rollout; tokens with odd ids pay."""

    def request(group: int, index: int) -> ChatRequest:
        return ChatRequest(
            messages=[
                {"role": "system", "content": "Be brief, and call tools."},
                {"role": "user", "content": f"find order {group}"},
            ],
            tools=TOOLS,
            max_tokens=3,
            seed=engine.step * 1000 + group * 100 + index,
        )

    async def sample() -> list[list[ChatResult]]:
        return [
            await asyncio.gather(
                *(engine.policy.chat(request(g, i)) for i in range(size))
            )
            for g in range(groups)
        ]

    return [
        [
            rollout(
                f"{engine.step}-{g}-{i}",
                sum(t % 2 for t in result.response_ids) / len(result.response_ids),
                [
                    ModelCall(
                        prompt_ids=result.prompt_ids,
                        response_ids=result.response_ids,
                        logprobs=result.logprobs,
                    )
                ],
            )
            for i, result in enumerate(results)
        ]
        for g, results in enumerate(asyncio.run(sample()))
    ]


def learn(engine: LocalEngine, steps: int) -> list[float]:
    """Do updates; return the mean reward before each."""
    seen = []
    for _ in range(steps):
        groups = play(engine)
        rewards = [t.reward for g in groups for t in g if t.reward is not None]
        seen.append(sum(rewards) / len(rewards))
        algorithm = engine._config.algorithm
        engine.update(credit(engine, groups, ALL, algorithm).batch)
    return seen


def weights(engine: LocalEngine) -> dict[str, torch.Tensor]:
    return {n: p.detach().clone() for n, p in engine._loaded.model.named_parameters()}


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["rloo", "grpo"])
def test_the_policy_learns_what_pays(make: Make, algorithm: str) -> None:
    engine = make(learning_rate=1e-2, algorithm=algorithm)
    rewards = learn(engine, 20)

    assert sum(rewards[:2]) / 2 < 0.65
    assert sum(rewards[-2:]) / 2 > 0.85
    assert engine.step == engine.policy.decoder.version == 20


@pytest.mark.slow
def test_an_adapter_learns_and_the_base_stays(make: Make) -> None:
    engine = make(lora_rank=4, learning_rate=2e-2)
    before = weights(engine)
    rewards = learn(engine, 20)
    after = weights(engine)

    changed = {n for n in before if not torch.equal(before[n], after[n])}
    assert changed
    assert all("lora_" in name for name in changed)
    assert sum(rewards[-2:]) > sum(rewards[:2]) + 0.1


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 4])
def test_a_penalty_keeps_the_policy_near_the_untrained_one(
    make: Make, rank: int
) -> None:
    def distances(coefficient: float) -> list[float]:
        engine = make(lora_rank=rank, learning_rate=1e-2, kl_coefficient=coefficient)
        found = [
            engine.update(credit(engine, play(engine), ALL).batch).reference_kl
            for _ in range(8)
        ]
        return [distance for distance in found if distance is not None]

    free, held = distances(1e-9), distances(3.0)
    assert free[0] == pytest.approx(0, abs=1e-6)
    assert len(free) == len(held) == 8
    assert free[-1] > 0.05
    assert held[-1] < 0.5 * free[-1]
    engine = make(lora_rank=rank)
    assert engine.update(credit(engine, play(engine), ALL).batch).reference_kl is None


@pytest.mark.slow
def test_a_few_tokens_that_are_far_off_show_in_the_ratios_and_not_in_the_mean(
    make: Make,
) -> None:
    engine = make()
    batch = credit(engine, play(engine), ALL).batch
    usual = engine.update(batch)
    assert usual.ratio_p99 == pytest.approx(1, abs=1e-4)
    assert usual.ratio_max == pytest.approx(1, abs=1e-4)
    assert usual.effective_share == pytest.approx(1, abs=1e-4)

    engine = make()
    credited = credit(engine, play(engine), ALL)
    batch = credited.batch
    far = max(batch.sequences, key=lambda sequence: sequence.ids[-1])
    last = far.trained[-1]
    ratio, count = math.exp(5), batch.trained_tokens
    lower = type(last)(last.position, last.logprob - 5, last.advantage)
    shared = sum(s.ids == far.ids for s in batch.sequences)
    far.trained[-1] = lower
    found = engine.update(batch)

    assert shared == 1, "its last token is a node of its own"
    assert found.logprob_gap == pytest.approx(5 / count, rel=0.01)
    assert found.ratio_max == pytest.approx(ratio, rel=0.01)
    assert found.ratio_p99 == pytest.approx(ratio if count < 100 else 1, rel=0.01)
    effective = (count - 1 + ratio) ** 2 / (count * (count - 1 + ratio**2))
    assert found.effective_share == pytest.approx(effective, rel=0.01)
    apart = {
        (id(sequence), token.position): value - token.logprob
        for sequence, values in zip(batch.sequences, found.learned, strict=True)
        for token, value in zip(sequence.trained, values, strict=True)
    }
    assert apart.pop((id(far), last.position)) == pytest.approx(5, abs=1e-3)
    assert max(map(abs, apart.values())) < 1e-3
    lines = list(credit_lines(credited, {}, found))
    calls = [call for line in lines for call in line["calls"]]
    gaps = [call["gaps"] for call in calls if call["bucket"] == "trained"]
    [[*others, shown]] = [found for found in gaps if found]
    assert (any(others), shown) == (False, pytest.approx(5, abs=1e-3))
    step = UpdateMetrics(step=1)
    unknown = [c for line in credit_lines(credited, {}, step) for c in line["calls"]]
    assert not any({"gaps", "entropy", "kl"} & set(call) for call in unknown)


def test_entropy_and_kl_are_recorded_by_call(make: Make) -> None:
    engine = make()
    credited = credit(engine, play(engine), ALL)
    found = engine.update(credited.batch)
    entropies = [value for own in found.entropies for value in own]
    assert found.clip_fraction == 0.0
    assert [*map(len, found.entropies)] == [
        len(sequence.trained) for sequence in credited.batch.sequences
    ]
    assert fmean(entropies) == pytest.approx(found.entropy, rel=1e-4)
    assert fmean([k for own in found.moved for k in own]) == pytest.approx(found.kl)

    calls = [c for line in credit_lines(credited, {}, found) for c in line["calls"]]
    trained = [call for call in calls if call["bucket"] == "trained"]
    sizes = [sum(end - start for start, end in call["spans"]) for call in trained]
    weighed = sum(c["entropy"] * n for c, n in zip(trained, sizes, strict=True))
    assert weighed / sum(sizes) == pytest.approx(found.entropy, rel=0.01)
    assert any("kl" in call for call in trained)


@pytest.mark.slow
def test_sequences_that_other_weights_have_sampled_are_masked_and_counted(
    make: Make,
) -> None:
    engine = make()
    groups = play(engine)
    far = groups[0][0].model_calls[0]
    far.logprobs = [logprob - 1.0 for logprob in far.logprobs]  # a ratio of e
    credited = credit(engine, groups, ALL)
    found = engine.update(credited.batch)
    credited.mask(found.far_off, FAR_OFF)

    assert [sequence.calls for sequence in found.far_off] == [[far]]
    assert found.refused == ""
    buckets = [b for entries in credited.ledger.values() for b in entries]
    assert credited.ledger[groups[0][0].rollout_id] == [Bucket("masked", FAR_OFF)]
    assert buckets.count(TRAINED) == len(buckets) - 1

    usual = engine.update(credit(engine, play(engine), ALL).batch)
    assert usual.far_off == []

    lenient = make(ratio_limit=3.0)
    assert not lenient.update(credit(lenient, groups, ALL).batch).far_off


def test_an_update_without_a_sequence_near_its_sampling_is_refused(make: Make) -> None:
    engine = make()
    before = weights(engine)
    groups = play(engine)
    for made in (made for group in groups for made in group):
        for one in made.model_calls:
            one.logprobs = [logprob + 1.0 for logprob in one.logprobs]
    found = engine.update(credit(engine, groups, ALL).batch)

    assert (len(found.far_off), found.refused) == (32, FAR_OFF)
    assert all(torch.equal(before[n], p) for n, p in weights(engine).items())
    assert engine.step == 1


def test_an_update_without_reward_variance_changes_nothing(make: Make) -> None:
    engine = make()
    before = weights(engine)
    groups = [[rollout(n, 0.5, [call([9] * 5, [10, 1])]) for n in "ab"]]
    credited = credit(engine, groups, ALL)
    metrics = engine.update(credited.batch)

    assert (metrics.step, credited.skipped_groups) == (1, 1)
    assert credited.batch.trained_tokens == 0
    assert all(torch.equal(before[n], p) for n, p in weights(engine).items())


def test_an_update_that_is_not_finite_is_refused_and_reported(make: Make) -> None:
    engine = make()
    before = weights(engine)
    impossible = call([9] * 5, [10, 1], -1000.0)  # the ratio overflows
    groups = [[rollout("a", -1.0, [impossible]), rollout("b", 1.0, [impossible])]]
    metrics = engine.update(credit(engine, groups, ALL).batch)

    assert not math.isfinite(metrics.grad_norm + metrics.loss)
    assert metrics.refused == NOT_FINITE
    assert all(torch.equal(before[n], p) for n, p in weights(engine).items())
    assert engine.step == 1


@pytest.fixture
def three_threads() -> Iterator[None]:
    """Let three threads compute parts of a forward pass or an update side by side."""
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("three_threads")
@pytest.mark.parametrize("rank", [0, 4])
def test_contract_5_the_same_seed_gives_the_same_weights_across_a_resume(
    make: Make, tmp_path: Path, rank: int
) -> None:
    """Bit for bit, with real updates on responses that each run samples itself."""
    settings = {"deterministic": True, "lora_rank": rank, "learning_rate": 3e-3}
    straight = make(**settings)
    learn(straight, 4)

    first = make(**settings)
    learn(first, 2)
    first.save_checkpoint(tmp_path)
    first.close()
    torch.rand(7)  # random state of the process must not matter
    resumed = make(**settings)
    resumed.load_checkpoint(tmp_path)
    assert resumed.step == 2
    learn(resumed, 2)

    expected = weights(straight)
    assert all(torch.equal(expected[n], p) for n, p in weights(resumed).items())
    assert resumed.step == straight.step == 4


@pytest.mark.parametrize(
    "name", ["weights.safetensors", "optimizer.safetensors", "engine.json"]
)
def test_a_damaged_checkpoint_is_named_and_changes_nothing(
    make: Make, tmp_path: Path, name: str
) -> None:
    engine = make()
    learn(engine, 1)
    engine.save_checkpoint(tmp_path)
    learn(engine, 1)
    before = weights(engine)
    path = tmp_path / name
    data = path.read_bytes()
    middle = len(data) // 2
    changed = bytes([data[middle] ^ 0xFF])
    for damaged in (None, data[:middle], data[:middle] + changed + data[middle + 1 :]):
        if damaged is None:
            path.unlink()
        else:
            path.write_bytes(damaged)
        with pytest.raises(CheckpointError, match=name):
            engine.load_checkpoint(tmp_path)
        assert engine.step == 2
        assert all(torch.equal(before[n], p) for n, p in weights(engine).items())


@pytest.mark.slow
def test_a_checkpoint_of_another_model_is_refused(make: Make, tmp_path: Path) -> None:
    make(lora_rank=2).save_checkpoint(tmp_path)

    with pytest.raises(CheckpointError, match="Resume with the settings"):
        make(lora_rank=4).load_checkpoint(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("rank", [0, 4])
def test_an_exported_policy_answers_as_the_trained_one(
    make: Make, tmp_path: Path, rank: int
) -> None:
    engine = make(lora_rank=rank, learning_rate=1e-2)
    learn(engine, 2)
    engine.export(tmp_path / "model")
    request = ChatRequest(
        messages=[{"role": "user", "content": "find order 7"}], tools=TOOLS, seed=3
    )
    expected = asyncio.run(engine.policy.chat(request))

    exported = LocalPolicy.load(tmp_path / "model", gpu="none")
    result = asyncio.run(exported.chat(request))
    exported.close()

    assert result.response_ids == expected.response_ids
    assert result.logprobs == pytest.approx(expected.logprobs, abs=1e-4)
    if rank:
        config = json.loads((tmp_path / "model" / "adapter_config.json").read_text())
        assert config["base_model_name_or_path"] == engine._config.model
    else:
        tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
        plain = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
        assert tokenizer.chat_template
        assert plain.dtype == torch.float32
        assert plain.config.model_type == "llama"


@pytest.mark.slow
def test_an_adapter_finds_its_base_from_any_folder(
    make: Make, model_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(model_folder.parent)
    engine = make(model=f"./{model_folder.name}", lora_rank=4)
    learn(engine, 1)
    engine.export(tmp_path / "model")

    monkeypatch.chdir(tmp_path)
    LocalPolicy.load("model", gpu="none").close()


@pytest.mark.slow
def test_running_responses_finish_before_an_update(make: Make) -> None:
    """Every response is from one version of the weights."""
    engine = make(learning_rate=1e-2)
    groups = play(engine)

    async def chat_while_updating() -> list[ChatResult]:
        request = [
            ChatRequest(
                messages=[{"role": "user", "content": f"look up {i}"}],
                tools=TOOLS,
                seed=i,
                max_tokens=60,
            )
            for i in range(40)
        ]
        early = [asyncio.create_task(engine.policy.chat(r)) for r in request[:20]]
        await asyncio.sleep(0.01)
        update = asyncio.to_thread(engine.update, credit(engine, groups, ALL).batch)
        updated = asyncio.create_task(update)
        late = [asyncio.create_task(engine.policy.chat(r)) for r in request[20:]]
        await updated
        return await asyncio.gather(*early, *late)

    before = weights(engine)
    results = asyncio.run(chat_while_updating())
    after = weights(engine)

    for version, state in ((0, before), (1, after)):
        engine._loaded.model.load_state_dict(
            {**engine._loaded.model.state_dict(), **state}
        )
        of_version = [r for r in results if r.model_version == version]
        for result in of_version:
            ids = torch.tensor([result.prompt_ids + result.response_ids])
            with torch.no_grad():
                logits = engine._loaded.model(ids).logits[0]
            logprobs = torch.log_softmax(logits[len(result.prompt_ids) - 1 : -1], -1)
            chosen = torch.tensor(result.response_ids)[:, None]
            assert logprobs.gather(-1, chosen)[:, 0].tolist() == pytest.approx(
                result.logprobs, abs=1e-3
            )
    assert {r.model_version for r in results} <= {0, 1}
