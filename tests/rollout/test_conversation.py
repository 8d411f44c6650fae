"""Conversations of several user turns, through real agents and the real gateway."""

import os
from pathlib import Path

import pytest
from transformers import AutoTokenizer

from agentgym.core.config import TrainingConfig
from agentgym.core.ledger import TRAINED
from agentgym.core.policy import ChatRequest, ChatResult
from agentgym.core.task import Split
from agentgym.core.trajectory import Trajectory
from agentgym.engines.scripted import Reply, ScriptedPolicy
from agentgym.engines.tokens.chat_tokens import ChatTokens
from agentgym.models.chat_template import ChatTemplate
from agentgym.models.nano import nano_path
from agentgym.rollout.runner import RolloutRequest
from agentgym.rollout.session import RolloutSession
from agentgym.scenarios.registry import get_scenario
from agentgym.train.batch import BatchBuilder
from tests.rollout.chatty import TURNS
from tests.variants import first_of

OWN = "tests.rollout.chatty:make_agent"
SYNC = "tests.rollout.chatty:make_sync_agent"
HOOKED = "tests.rollout.chatty:make_hooked_agent"
QUICK = [
    {"framework": "native"},
    {"framework": "langchain"},
    {"framework": "langchain", "agent": OWN},
]
OTHERS = [
    {"framework": "crewai"},
    {"framework": "autogen"},
    {"framework": "autogen", "agent": "tests.plugins.autogen.teams:make_agent"},
    {"framework": "langchain", "agent": SYNC},
    {"framework": "agent_framework"},
    {"framework": "openai_agents"},
    {"framework": "pydantic_ai"},
]
"""Each starts workers that import one framework more."""
AGENTS = [*QUICK, *(pytest.param(each, marks=pytest.mark.slow) for each in OTHERS)]
TRAINABLE = {"tool_selection": True, "parameter_selection": True}
END = "<|end|>"
CREWAI_SAYS = "\nCurrent Task: "


class NanoTokens(ScriptedPolicy):
    """Says what it is told to in the shipped policy's template and tokens."""

    def __init__(self, script: list[str]) -> None:
        super().__init__(lambda _: Reply())
        self.tokenizer = AutoTokenizer.from_pretrained(nano_path())
        self.script = script
        ends = frozenset(self.tokenizer.encode(END, add_special_tokens=False))
        template = ChatTemplate("nano", self.tokenizer)
        self.tokens = ChatTokens("nano", self.tokenizer, template, ends, 1024)

    async def chat(self, request: ChatRequest) -> ChatResult:
        prompt, _ = self.tokens.prompt(request)
        said = sum(m["role"] == "assistant" for m in request.messages)
        text = self.script[said] + END
        ids = self.tokenizer.encode(text, add_special_tokens=False)
        logprobs = [-1.0] * len(ids)
        return self.tokens.result(
            request, prompt, ids, logprobs, reason="stop", version=0
        )


@pytest.fixture(autouse=True)
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the chatty scenario, here and for the workers."""
    info = tmp_path / "site" / "chatty-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: chatty\n")
    (info / "entry_points.txt").write_text(
        "[agentgym.scenarios]\nchatty = tests.rollout.chatty:ChattyScenario\n"
    )
    monkeypatch.syspath_prepend(info.parent)
    monkeypatch.setenv("PYTHONPATH", f"{info.parent}{os.pathsep}{os.getcwd()}")


def run(folder: Path, policy: ScriptedPolicy, seed: int, **agent: str) -> Trajectory:
    tasks = get_scenario("chatty").tasks(Split.TRAIN, seed, 1)
    requests = [
        RolloutRequest(f"r{i}", task, train=True, group="g", step=1)
        for i, task in enumerate(tasks)
    ]
    config = TrainingConfig.create(scenario="chatty", **agent)
    with RolloutSession(config, policy, folder, 1) as session:
        [trajectory] = session.run(requests, lambda _: None)
    return trajectory


def call(text: str) -> str:
    return (
        f'<tool_call>{{"name": "note", "arguments": {{"text": "{text}"}}}}</tool_call>'
    )


@pytest.mark.slow
@pytest.mark.parametrize("agent", AGENTS, ids=str)
def test_a_conversation_goes_on_until_the_user_is_done(
    tmp_path: Path, agent: dict[str, str]
) -> None:
    script = ["What is your  name? ", call("Ada"), "Which color?", call("blue"), "Done"]
    policy = NanoTokens(script)
    trajectory = run(tmp_path, policy, 0, **agent)

    assert trajectory.success, trajectory.reason
    assert trajectory.reason is None
    assert [c.arguments for c in trajectory.get_tool_calls()] == [
        {"text": "Ada"},
        {"text": "blue"},
    ]
    last = trajectory.model_calls[-1].messages
    users = [
        m["content"].removeprefix(CREWAI_SAYS) for m in last if m["role"] == "user"
    ]
    assert users == ["I want a lamp.", *TURNS]
    answers = [p for p in trajectory.reward_parts if p.startswith("answer")]
    assert answers == [
        "answer What is your  name? ",
        "answer Which color?",
        "answer Done",
    ]

    role = "clerk" if agent.get("agent") == SYNC else "agent"
    assert {made.agent for made in trajectory.model_calls} == {role}

    # One sequence of exact tokens over all user turns, and no call left out.
    other = trajectory.model_copy(update={"rollout_id": "other", "reward": 0.0})
    builder = BatchBuilder(
        algorithm="rloo",
        trainable=TRAINABLE,
        label=policy.tokens.label,
        failure_cost=0.0,
    )
    pair = [trajectory, other]
    batch = builder.build([pair], lambda t: [t.reward or 0.0] * 5)
    assert batch.ledger == {t.rollout_id: [TRAINED] * 5 for t in pair}
    assert len(batch.batch.sequences) == 2
    assert batch.batch.sequences[0].ids == [
        *trajectory.model_calls[-1].prompt_ids,
        *trajectory.model_calls[-1].response_ids,
    ]


@pytest.mark.slow
@pytest.mark.parametrize("agent", first_of([*QUICK, *OTHERS], len(QUICK)), ids=str)
def test_turns_are_counted_over_the_whole_conversation(
    tmp_path: Path, agent: dict[str, str]
) -> None:
    def respond(request: ChatRequest) -> Reply:
        said = sum(m["role"] == "assistant" for m in request.messages)
        return Reply(calls=[("note", {"text": "x"})]) if said % 2 else Reply("Well?")

    trajectory = run(tmp_path, ScriptedPolicy(respond), 1, **agent)
    assert str(trajectory.reason).startswith("max_turns: no answer within")
    assert len(trajectory.model_calls) == get_scenario("chatty").max_turns
    assert trajectory.reward is not None


@pytest.mark.parametrize("notes", [5, 6])
def test_turns_are_model_calls_whatever_else_the_agent_does(
    tmp_path: Path, notes: int
) -> None:
    def respond(request: ChatRequest) -> Reply:
        said = sum(m["role"] == "assistant" for m in request.messages)
        return Reply("Done.") if said == notes else Reply(calls=[note(said)])

    def note(number: int) -> tuple[str, dict[str, str]]:
        return "note", {"text": str(number)}

    policy = ScriptedPolicy(respond)
    trajectory = run(tmp_path, policy, 1, framework="langchain", agent=HOOKED)
    assert str(trajectory.reason).startswith("max_turns: no answer within")
    assert len(trajectory.model_calls) == get_scenario("chatty").max_turns
    answers = [p for p in trajectory.reward_parts if p.startswith("answer")]
    assert answers == (["answer Done."] if notes == 5 else [])
    assert len(trajectory.get_tool_calls()) == notes
