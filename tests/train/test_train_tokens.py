"""Which of its own tokens a model learns from: ``train_tokens``."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from agentgym import Trainer, TrainingConfig
from agentgym.core.components import TRAIN_TOKENS
from agentgym.core.policy import ChatRequest, ChatResult
from agentgym.core.task import Split
from agentgym.core.trajectory import Trajectory
from agentgym.engines.scripted import Reply, ScriptedPolicy
from agentgym.engines.tokens.chat_tokens import ChatTokens
from agentgym.errors import ConfigError
from agentgym.models.chat_template import ChatTemplate
from agentgym.models.nano import nano_path
from agentgym.plugins.view.report import render_report
from agentgym.rollout.runner import RolloutRequest
from agentgym.rollout.session import RolloutSession
from agentgym.scenarios.base import Scenario
from agentgym.scenarios.registry import get_scenario
from agentgym.train.batch import BatchBuilder
from tests.cli.conftest import Command, agentgym

__all__ = ["agentgym"]

PACK = '''
from agentgym import Reward
from tests.made_packs import Looking


class Said(Looking):
    """Only the text of the answer is paid."""

    name = "said"

    def about(self, split, number):
        return {"instruction": f"Say hello to guest {number}."}

    def calculate_reward(self, task, environment, trajectory):
        return self.score(trajectory)

    def score(self, trajectory):
        right = (trajectory.answer or "").startswith("All")
        return Reward(float(right), right)

    def success_criteria(self):
        return {"success_rate": 0.9}
'''

END = "<|end|>"
THOUGHT = "<think>It may be there.</think>"
SPOKEN = "I look. "
NAME = '<tool_call>{"name": "look", "arguments": '
VALUES = '{"place": "here"}'
CLOSE = "}</tool_call>"
ANSWER = "All is there"


@pytest.fixture
def pack(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a scenario that pays the text of answers."""
    monkeypatch.setenv("AGENTGYM_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "said"
    folder.mkdir()
    (folder / "scenario.py").write_text(PACK)
    return folder


class Script(ScriptedPolicy):
    """Writes given parts in the shipped policy's tokens, each encoded on its own."""

    def __init__(self, script: Sequence[Sequence[str]]) -> None:
        super().__init__(lambda _: Reply())
        self.tokenizer = AutoTokenizer.from_pretrained(nano_path())
        self.script = [[self.encode(part) for part in parts] for parts in script]
        template = ChatTemplate("nano", self.tokenizer)
        ends = frozenset(self.encode(END))
        self.tokens = ChatTokens("nano", self.tokenizer, template, ends, 1024)

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False)
        return ids

    async def chat(self, request: ChatRequest) -> ChatResult:
        prompt, _ = self.tokens.prompt(request)
        turn = sum(m["role"] == "assistant" for m in request.messages)
        ids = [each for part in self.script[turn] for each in part]
        return self.tokens.result(
            request, prompt, ids, [-1.0] * len(ids), reason="stop", version=0
        )


def roll_out(
    config: TrainingConfig, policy: ScriptedPolicy, folder: Path
) -> tuple[Scenario, Trajectory]:
    """Return the scenario, and one rollout of it through the gateway and a worker."""
    scenario = get_scenario(config.scenario)
    folder.mkdir()
    [task] = scenario.tasks(Split.TRAIN, 0, 1)
    request = RolloutRequest("r", task, train=True, group="g", step=1)
    with RolloutSession(config, policy, folder, 1) as session:
        [made] = session.run([request], lambda _: None)
    return scenario, made


def trained_texts(
    scenario: Scenario, policy: Script, made: Trajectory, tokens: str | None
) -> list[str]:
    """Return the text of the trained tokens of each of a rollout's calls."""
    config = TrainingConfig.create(train_tokens=tokens)
    builder = BatchBuilder.of(config, scenario, policy.tokens.label)
    texts = []
    for call in made.model_calls:
        alone = made.model_copy(update={"steps": [call]})
        other = alone.model_copy(update={"rollout_id": "other", "reward": -1.0})
        batch = builder.build([[alone, other]], lambda t: [t.reward or 0.0]).batch
        [one, _] = batch.sequences
        ids = [one.ids[token.position] for token in one.trained]
        texts.append(str(policy.tokenizer.decode(ids)))
    return texts


def test_each_value_trains_its_own_tokens(pack: Path, tmp_path: Path) -> None:
    parts = [THOUGHT, SPOKEN, NAME, VALUES, CLOSE, END], [ANSWER, END]
    policy = Script(parts)
    config = TrainingConfig.create(scenario=str(pack), framework="native", workers=1)
    scenario, made = roll_out(config, policy, tmp_path / "run")
    assert made.success, made.reason
    assert [len(call.tool_calls) for call in made.model_calls] == [1, 0]

    def text(*parts: str) -> str:
        ids = [each for part in parts for each in policy.encode(part)]
        decoded: str = policy.tokenizer.decode(ids)
        return decoded

    spoken, answer = policy.encode(SPOKEN), policy.encode(ANSWER)
    first_spoken = policy.tokenizer.decode(spoken[:1])
    first_answer = policy.tokenizer.decode(answer[:1])
    call, decision = text(NAME, VALUES, CLOSE, END), first_answer + END
    expected = {
        "calls": [first_spoken + call, decision],
        "calls+reasoning": [text(THOUGHT) + first_spoken + call, decision],
        "all": [text(*parts[0]), text(*parts[1])],
    }
    found = {
        tokens: trained_texts(scenario, policy, made, tokens) for tokens in TRAIN_TOKENS
    }
    assert found == expected
    assert trained_texts(scenario, policy, made, None) == expected["calls"]

    vars(scenario)["train_tokens"] = "all"
    assert trained_texts(scenario, policy, made, None) == expected["all"]
    assert trained_texts(scenario, policy, made, "calls") == expected["calls"]


def test_a_value_that_is_not_a_choice_is_refused(pack: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        TrainingConfig.create(train_tokens="everything")
    for word in ("train_tokens = 'everything'", *map(repr, TRAIN_TOKENS)):
        assert word in str(refused.value)


def test_the_plan_names_what_is_trained_and_a_reward_that_is_not(pack: Path) -> None:
    config = TrainingConfig.create(scenario=str(pack), framework="native", gpu="none")
    plan = Trainer(config).plan()
    assert (plan.trained, plan.config.train_tokens) == ("calls", "calls")
    [note] = [text for text in plan.notes if "train_tokens" in text]
    assert note == (
        "calculate_reward reads the answer, and the model does not learn from the text "
        "of its answers; to train that too: --set train_tokens=all"
    )
    plan = Trainer(config.replaced(train_tokens="all")).plan()
    assert (plan.trained, plan.notes) == ("all", ())


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_reward_for_the_answers_text_is_learned(
    pack: Path, agentgym: Command
) -> None:
    settings: dict[str, Any] = {
        "scenario": str(pack),
        "framework": "native",
        "gpu": "none",
        "train_tokens": "all",
        "episodes": 320,
        "eval_every": 100,
        "test_tasks": 16,
        "learning_rate": 1e-3,
        "workers": 1,
        "tracker": "none",
        "yes": True,
    }
    result = Trainer(TrainingConfig.create(**settings)).train()
    assert result.ledger.tokens == "all"
    assert result.metrics.pass_1.value > result.baseline.pass_1.value + 0.3
    assert "Learned from: all that the model writes" in render_report(result)
    shown = agentgym("runs", "show", str(result.artifacts.run)).out
    assert "learns from  all that the model writes" in shown
    assert "; learned from: all" in shown
