"""How far training moves a model on everyday questions."""

import json
import math
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import pytest
import torch

from agentgym import Trainer, TrainingConfig
from agentgym.engines.local.engine import LocalEngine
from agentgym.engines.scripted import Reply
from agentgym.errors import ConfigError
from agentgym.plugins.view.report import render_report
from agentgym.train import forgetting
from agentgym.train.forgetting import (
    LARGE,
    MOST_TOKENS,
    Forgetting,
    ask_questions,
    compare,
    read_questions,
)
from tests.scripted_engine import ScriptedEngine

MANY = 10_000


def chat_config(**settings: object) -> TrainingConfig:
    return TrainingConfig.create(gpu="none", engine="local", **settings)


@pytest.fixture
def chatty_nano(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the shipped policy be asked questions, as a language model is."""
    monkeypatch.setattr(forgetting, "is_small", lambda model: False)


@pytest.fixture
def engine(chatty_nano: None) -> Iterator[LocalEngine]:
    made = LocalEngine.create(chat_config(deterministic=True))
    yield made
    made.close()


def weights(engine: LocalEngine) -> list[torch.Tensor]:
    return [p for _, p in engine._loaded.trained_parameters()]


def test_fifty_different_questions_ship_with_the_package() -> None:
    questions = read_questions()
    assert len(questions) == len(set(questions)) == 50
    assert all(0 < len(question) < 80 for question in questions)
    assert files("agentgym.train").joinpath("forgetting_questions.txt").is_file()


@pytest.mark.slow
def test_the_distance_is_none_before_an_update_and_exact_after_one(
    engine: LocalEngine,
) -> None:
    config = chat_config(forgetting_questions=8)
    asked = ask_questions(engine, config, MANY)
    assert (asked.questions, asked.kl, asked.skipped) == (8, None, "")
    assert 8 <= asked.tokens <= 8 * MOST_TOKENS

    same = compare(engine, asked)
    assert same.kl == pytest.approx(0.0, abs=1e-6)
    assert not same.is_large

    with torch.no_grad():
        for parameter in weights(engine):
            parameter.mul_(1.05)
    moved = compare(engine, asked)

    total = 0.0
    for answer in asked.answers:
        ids = torch.tensor([[*answer.prompt_ids, *answer.response_ids]])
        with torch.no_grad():
            logits = engine._loaded.model(ids).logits[0].float()
        now = torch.log_softmax(logits, -1)
        for place, logprob in enumerate(answer.logprobs):
            at = len(answer.prompt_ids) + place
            log_ratio = float(now[at - 1, ids[0, at]]) - logprob
            total += math.exp(log_ratio) - 1 - log_ratio
    assert moved.kl is not None
    assert moved.kl > 1e-3
    assert moved.kl == pytest.approx(total / asked.tokens, rel=1e-2)


@pytest.mark.slow
def test_questions_take_a_small_share_of_a_run(engine: LocalEngine) -> None:
    def count(rollouts: int, seconds: float | None = None, **given: object) -> int:
        config = chat_config(**given)
        return ask_questions(engine, config, rollouts, seconds).questions

    assert count(250) == 10
    assert count(MANY, 10.0, time="1h", forgetting_questions=20) == 14


@pytest.mark.usefixtures("chatty_nano")
def test_a_run_that_measures_nothing_says_why() -> None:
    scripted = ScriptedEngine(lambda _: Reply("Done."))

    def why(rollouts: int = MANY, **given: object) -> str:
        found = ask_questions(scripted, chat_config(**given), rollouts)
        assert found == compare(scripted, found)
        return found.words()

    assert why(forgetting_questions=0) == "not measured: forgetting_questions is 0"
    other = "not measured: the engine local does not compare models"
    assert why() == other
    scripted.compares = True  # type: ignore[misc]
    assert why(rollouts=100) == "not measured: the run is too short for 8 questions"
    with pytest.raises(ConfigError, match="forgetting_questions = 51"):
        chat_config(forgetting_questions=51)


def test_the_shipped_policy_is_not_asked() -> None:
    scripted = ScriptedEngine(lambda _: Reply("Done."))
    found = ask_questions(scripted, chat_config(), MANY)
    assert found.words() == "not measured: nano calls tools and cannot chat"


def test_a_large_distance_is_named_large() -> None:
    assert "a lot" in Forgetting(questions=50, kl=LARGE).words()
    assert Forgetting(questions=50, kl=0.0123).words() == (
        "0.012 nats a token from the untrained model, in its answers to 50 everyday "
        "questions (KL)"
    )


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.usefixtures("chatty_nano")
def test_a_run_reports_the_distance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AGENTGYM_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    config = TrainingConfig.create(
        scenario="customer_support",
        framework="native",
        gpu="none",
        episodes=136,
        test_tasks=8,
        eval_tasks=8,
        eval_every=2,
        early_stop=False,
        learning_rate=1e-3,
        workers=1,
        tracker="none",
        yes=True,
    )
    result = Trainer(config).train()
    found = result.forgetting
    assert found is not None
    assert (found.answers, found.questions) == ([], 8)
    assert found.kl is not None
    assert found.kl > 0
    assert f"On everyday questions: {found.words()}" in render_report(result)
    lines = (result.artifacts.run / "metrics.jsonl").read_text().splitlines()
    steps = [json.loads(line) for line in lines]
    assert ["forgetting_kl" in step for step in steps][:2] == [False, True]
