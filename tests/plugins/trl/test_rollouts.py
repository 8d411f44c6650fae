"""Agents in TRL's own GRPOTrainer, on the shipped policy.

Slow: TRL and a framework are imported, workers are started, and a model is trained.
"""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agentgym.errors import ConfigError, UsageError
from agentgym.plugins.trl import AgentRollouts
from agentgym.plugins.trl.rollouts import CUT

EXAMPLES = Path(__file__).parents[3] / "examples"
PROGRAM = Path(__file__).parents[2] / "plugins" / "programs" / "bookshop.py"
SIZE = 4

Make = Callable[..., Any]


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Make TRL's trainer."""
    pytest.importorskip("trl")
    from trl import GRPOConfig

    from tests.plugins.trl.watched import Watched

    def make_trainer(rollouts: AgentRollouts, lora: Any = None, **more: Any) -> Any:
        settings = {
            "output_dir": str(tmp_path / "trl"),
            "max_steps": 2,
            "per_device_train_batch_size": SIZE,
            "num_generations": SIZE,
            "max_completion_length": 700,
            "learning_rate": 1e-3,
            "temperature": 1.4,
            "gradient_checkpointing": False,
            "use_cpu": True,
            "bf16": False,
            "logging_steps": 1,
            "save_strategy": "no",
            "report_to": "none",
            "disable_tqdm": True,
        }
        return Watched(
            model=rollouts.model,
            rollout_func=rollouts,
            reward_funcs=rollouts.episode_reward,
            train_dataset=rollouts.dataset(64),
            peft_config=lora,
            args=GRPOConfig(**{**settings, **more}),
        )

    return make_trainer


@pytest.fixture
def coding() -> Iterator[AgentRollouts]:
    with AgentRollouts(
        "coding", framework="native", train_tokens="all", workers=1
    ) as made:
        yield made


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_an_adapter_is_sampled_as_it_is_after_each_step(
    coding: AgentRollouts, make: Make
) -> None:
    from peft import LoraConfig

    trainer = make(coding, LoraConfig(r=4, lora_alpha=8, target_modules="all-linear"))
    trainer.train()

    trainer.check(steps=2, most=1e-3)
    logged = [line for line in trainer.state.log_history if "reward" in line]
    assert [line["agentgym/dropped"] for line in logged] == [0, 0]
    rewards = [made.reward for made in coding.trajectories.values()]
    assert logged[-1]["reward"] == pytest.approx(sum(rewards) / SIZE, abs=1e-3)
    assert coding.ledger.adds_up
    assert coding.ledger.trained > 2 * SIZE
    assert set(coding.ledger.masked) <= {CUT}
    assert {
        call.model_version
        for each in coding.trajectories.values()
        for call in each.model_calls
    } == {1}


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    "subject",
    [
        {"agent": "bike_shop:desk", "tasks": "tasks.jsonl"},
        {
            "command": f"{sys.executable} {PROGRAM}",
            "tasks": EXAMPLES / "any_program" / "tasks.jsonl",
        },
    ],
)
def test_any_agent_gives_a_batch(
    make: Make, monkeypatch: pytest.MonkeyPatch, subject: dict[str, Any]
) -> None:
    monkeypatch.chdir(EXAMPLES / "openai_agents")
    with AgentRollouts(**subject, workers=1, train_tokens="all") as rollouts:
        trainer = make(rollouts)
        prompts = [row["prompt"] for row in rollouts.dataset(2)]
        given = rollouts([prompts[0], prompts[0], prompts[1]], trainer)

    assert {len(entries) for entries in given.values()} == {3}
    for ids, mask, logprobs in zip(
        given["completion_ids"], given["env_mask"], given["logprobs"], strict=True
    ):
        assert len(ids) == len(mask) == len(logprobs)
        assert any(mask)
        assert all(value <= 0 for value in logprobs)
    assert None not in given["reward"]
    groups = [name.rsplit("-", 1)[0] for name in given["rollout_id"]]
    assert groups[0] == groups[1] != groups[2]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("settings", "wording"),
    [
        ({"top_k": 5}, "top_k=0"),
        ({"generation_kwargs": {"top_p": 0.5}}, "generation_kwargs=None"),
    ],
)
def test_sampling_of_trls_is_refused(
    coding: AgentRollouts, make: Make, settings: dict[str, Any], wording: str
) -> None:
    trainer = make(coding, **settings)
    with pytest.raises(UsageError, match=wording):
        coding([coding.dataset(1)[0]["prompt"]], trainer)


def test_settings_of_training_are_trls() -> None:
    with pytest.raises(ConfigError, match="learning_rate: .* set them in GRPOConfig"):
        AgentRollouts("coding", framework="native", learning_rate=0.1)


def test_a_prompt_of_another_data_set_is_refused() -> None:
    rollouts = AgentRollouts("coding", framework="native")
    for prompt in ("Repair it.", [{"role": "user", "content": "Repair it."}], []):
        with pytest.raises(UsageError, match=r"rollouts\.dataset"):
            rollouts([prompt], object())  # type: ignore[arg-type]
