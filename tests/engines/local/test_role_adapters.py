"""Each role of a team has an adapter of its own over one copy of the weights."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from agentgym.core.config import TrainingConfig
from agentgym.core.policy import ChatRequest, ChatResult
from agentgym.engines.base import TrainingBatch
from agentgym.engines.local.engine import LocalEngine
from agentgym.engines.local.loading import load_model
from agentgym.engines.local.policy import LocalPolicy
from agentgym.engines.local.support import LocalEngines
from agentgym.engines.memory import MemoryEstimate, shape_of, told_use
from agentgym.errors import UnsupportedError
from agentgym.models.folder import held_rank, held_roles
from tests.engines.local.architectures import save
from tests.engines.local.rollouts import TOOLS, by_parity, chat

ROLES = ("supervisor", "test er")  # a name that cannot be a folder's
NOBODY = "reviewer"
Make = Callable[..., LocalEngine]


def settings(folder: Path, **more: Any) -> TrainingConfig:
    given = {"model": str(folder), "gpu": "none", "lora_rank": 4}
    given |= {"role_adapters": True, "train_roles": ROLES, "learning_rate": 2e-2}
    return TrainingConfig.create(**{**given, **more})


@pytest.fixture
def make(model_folder: Path) -> Iterator[Make]:
    made: list[LocalEngine] = []

    def make_engine(folder: Path = model_folder, **more: Any) -> LocalEngine:
        made.append(LocalEngine.create(settings(folder, **more)))
        return made[-1]

    yield make_engine
    for engine in made:
        engine.close()


def requests(roles: tuple[str, ...], seed: int = 0) -> list[ChatRequest]:
    """Return the same prompts for each role, so that only the role sets them apart."""
    return [
        ChatRequest(
            messages=[{"role": "user", "content": f"look up {number}"}],
            tools=TOOLS,
            agent=role,
            seed=seed + number,
            max_tokens=16,
        )
        for number in range(4)
        for role in roles
    ]


def update(engine: LocalEngine, roles: tuple[str, ...]) -> float:
    """Sample, update, and return the gap between sampling and learning."""
    asked = requests(roles, seed=100 * engine.step)
    return engine.update(
        by_parity(chat(engine.policy, asked), asked, ROLES[0])
    ).logprob_gap


def weights(engine: LocalEngine) -> dict[str, torch.Tensor]:
    found = engine._loaded.model.named_parameters()
    return {name: parameter.detach().clone() for name, parameter in found}


def changed(before: dict[str, torch.Tensor], engine: LocalEngine) -> set[str]:
    """Return the owners of the parameters that changed: an adapter's name or base."""
    names = {n for n, p in weights(engine).items() if not torch.equal(p, before[n])}
    return {n.split(".")[-2] if ".lora_" in n else "base" for n in names}


@pytest.mark.slow
def test_an_update_changes_only_the_adapter_of_the_role_that_spoke(make: Make) -> None:
    engine = make()
    update(engine, ROLES)  # both have moments, which would move a weight on their own
    for role, name in zip(ROLES, ("r1_supervisor", "r2_test_er"), strict=True):
        before = weights(engine)
        update(engine, (role,))
        assert changed(before, engine) == {name}
    before = weights(engine)
    update(engine, ROLES)
    assert changed(before, engine) == {"r1_supervisor", "r2_test_er"}


@pytest.mark.slow
@pytest.mark.parametrize(("precision", "most"), [("float32", 1e-5), ("bf16", 0.03)])
def test_recorded_log_probabilities_are_the_learners_for_every_role(
    make: Make, precision: str, most: float
) -> None:
    engine = make(precision=precision)
    gaps = [update(engine, ROLES) for _ in range(5)]
    assert max(gaps) < most

    asked = requests(ROLES, seed=7)
    found = chat(engine.policy, asked)
    other = {ROLES[0]: ROLES[1], ROLES[1]: ROLES[0]}
    swapped = by_parity(found, asked, ROLES[0])
    for sequence in swapped.sequences:
        sequence.agent = other[sequence.agent]
    assert engine.update(swapped).logprob_gap > 10 * most, (
        "the roles' adapters are alike"
    )


@pytest.mark.slow
def test_the_model_below_answers_for_other_roles(make: Make) -> None:
    engine, fresh = make(), make()
    for _ in range(3):
        update(engine, ROLES)
    asked = requests((NOBODY, *ROLES), seed=7)
    found = chat(engine.policy, asked)
    below = chat(fresh.policy, asked)
    for request, now, before in zip(asked, found, below, strict=True):
        if request.agent == NOBODY:
            assert now.response_ids == before.response_ids
            assert now.logprobs == pytest.approx(before.logprobs, abs=1e-5)
        else:
            assert now.logprobs != pytest.approx(before.logprobs, abs=1e-2)
    apart = by_parity(found, asked, ROLES[0])
    own = [s for s in apart.sequences if s.agent == NOBODY]
    assert engine.compare(TrainingBatch(own)) == pytest.approx(0, abs=1e-6)


@pytest.mark.slow
def test_a_kept_prefix_is_not_that_of_another_role(make: Make) -> None:
    """One conversation, asked about by each role in turn, as alone."""
    engine = make()
    for _ in range(3):
        update(engine, ROLES)
    said = [{"role": "user", "content": "look up a file, please, and read it"}]
    said += [{"role": "assistant", "content": "a"}, {"role": "user", "content": "b"}]

    def ask(role: str) -> ChatResult:
        request = ChatRequest(
            said, TOOLS, agent=role, session="s", seed=3, max_tokens=16
        )
        [found] = chat(engine.policy, [request])
        return found

    together = {role: ask(role).logprobs for role in (*ROLES, NOBODY, *ROLES)}
    for role in (*ROLES, NOBODY):
        engine.policy.decoder.between_responses(lambda: None)  # forgets what it kept
        assert ask(role).logprobs == pytest.approx(together[role], abs=1e-5)
    assert together[ROLES[0]] != pytest.approx(together[ROLES[1]], abs=1e-2)


@pytest.mark.slow
def test_a_run_goes_on_from_its_checkpoint(make: Make, tmp_path: Path) -> None:
    first, second = make(), make()
    update(first, (ROLES[0],))  # the other has no moments yet
    first.save_checkpoint(tmp_path)
    update(second, ROLES)
    second.load_checkpoint(tmp_path)
    for engine in (first, second):
        torch.manual_seed(0)
        update(engine, ROLES)
    kept = weights(first)
    for name, weight in weights(second).items():
        torch.testing.assert_close(weight, kept[name], msg=name)


@pytest.mark.slow
def test_all_adapters_are_saved_and_loaded_together(make: Make, tmp_path: Path) -> None:
    engine = make()
    for _ in range(3):
        update(engine, ROLES)
    engine.export(tmp_path / "model")
    assert held_roles(tmp_path / "model") == ROLES
    assert held_rank(tmp_path / "model") == 4
    for name in ("r1_supervisor", "r2_test_er"):
        assert (tmp_path / "model" / name / "adapter_model.safetensors").is_file()

    policy = LocalPolicy.load(tmp_path / "model", gpu="none")
    asked = requests((*ROLES, NOBODY), seed=7)
    try:
        loaded = chat(policy, asked)
    finally:
        policy.close()
    for now, before in zip(loaded, chat(engine.policy, asked), strict=True):
        assert now.response_ids == before.response_ids
        assert now.logprobs == pytest.approx(before.logprobs, abs=1e-5)


@pytest.mark.slow
def test_a_deterministic_run_does_not_depend_on_the_other_roles(make: Make) -> None:
    engine = make(deterministic=True)
    update(engine, ROLES)
    asked = requests((*ROLES, NOBODY), seed=7)
    together = chat(engine.policy, asked)
    for request, result in zip(asked, together, strict=True):
        [alone] = chat(engine.policy, [request])
        assert alone.logprobs == result.logprobs


@pytest.mark.slow
def test_models_whose_tokens_cannot_be_packed(make: Make, tmp_path: Path) -> None:
    save("mistral", tmp_path)  # has a window
    engine = make(tmp_path)
    assert not engine._loaded.traits.is_packed
    gaps = [update(engine, ROLES) for _ in range(2)]
    assert max(gaps) < 1e-4
    before = weights(engine)
    update(engine, (ROLES[1],))
    assert changed(before, engine) == {"r2_test_er"}


@pytest.mark.parametrize("count", [1, 3])
def test_the_memory_of_all_adapters_is_counted(model_folder: Path, count: int) -> None:
    roles = tuple(f"role {number}" for number in range(count))
    config = settings(model_folder, train_roles=roles)
    known = shape_of(config.model)
    assert known is not None
    use = told_use(config, on_gpu=False, has_half=False)
    estimate = MemoryEstimate.of(*(known[0], use), known[1])
    loaded = load_model(
        str(model_folder),
        device="cpu",
        rank=4,
        seed=0,
        precision="float32",
        roles=roles,
    )
    held = sum(p.nbytes for n, p in loaded.model.named_parameters() if ".lora_" in n)
    assert estimate.adapter == estimate.gradients == held
    assert (
        LocalEngines()
        .check(config)
        .model.endswith(f"LoRA rank 4 for each of {', '.join(roles)})")
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "nano", "lora_rank": None}, "all weights of 'nano' are trained"),
        ({"lora_rank": 0}, "all weights of"),
        ({"train_roles": None}, "name the roles that get an adapter"),
        ({"framework": "autogen"}, "of autogen does not say which role is asking"),
    ],
)
def test_what_cannot_have_them_is_refused(
    model_folder: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(UnsupportedError, match=message) as refused:
        LocalEngines().check(settings(model_folder, **changes))
    assert str(refused.value).startswith("role_adapters: ")
    assert str(refused.value).count(". ") == 0, "one sentence"


def test_other_engines_refuse_them(model_folder: Path) -> None:
    from agentgym.engines.registry import check_engine

    for engine in ("vllm", "verl"):
        with pytest.raises(UnsupportedError, match="role_adapters = True is a setting"):
            check_engine(settings(model_folder, engine=engine))
