"""Calls that were restricted in training stay so where the trained model is used."""

import asyncio
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from agentgym import TrainedAgent, Trainer
from agentgym.core.config import TrainingConfig
from agentgym.core.policy import ChatRequest, ChatResult, Policy
from agentgym.core.template_settings import Constrain
from agentgym.core.trajectory import Grammar
from agentgym.engines.tokens.grammar import Grammars
from agentgym.train import plan

pytestmark = pytest.mark.slow  # trains
SCHEMA = {
    "type": "object",
    "properties": {"room": {"enum": ["blue", "red"]}, "beds": {"type": "integer"}},
    "required": ["room", "beds"],
}
TOOL = {"name": "book_room", "description": "Book a room.", "parameters": SCHEMA}


def trained(folder: Path, **settings: Any) -> TrainedAgent:
    """Train for one step, on tasks of one tool."""
    folder.mkdir()
    tasks = folder / "rooms.jsonl"
    rooms = [{"room": ("blue", "red")[n % 2], "beds": n} for n in range(16)]
    lines = [
        {
            "instruction": f"Book a {given['room']} room of {given['beds']} beds.",
            "tools": [TOOL],
            "expect": [{"tool": "book_room", "args": given}],
        }
        for given in rooms
    ]
    tasks.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    config = TrainingConfig.create(
        scenario=str(tasks),
        framework="native",
        gpu="none",
        yes=True,
        episodes=8,
        group_size=4,
        tasks_per_step=2,
        eval_tasks=2,
        test_tasks=2,
        eval_samples=1,
        workers=1,
        forgetting_questions=0,
        tracker="none",
        output=folder / "runs",
        **settings,
    )
    return Trainer(config, progress=False).train().trained


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> TrainedAgent:
    """Return an agent of two runs; the second one's model is of the first."""
    folder = tmp_path_factory.mktemp("constrained")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AGENTGYM_HOME", str(folder / "home"))
        patch.setattr(plan, "require_sound", lambda _: None)  # 10 s
        first = trained(folder / "first", constrain="calls")
        exported = first.export(folder / "exported")
        return trained(folder / "second", model=str(exported))


def answers(policy: Policy) -> list[ChatResult]:
    """Return answers at a temperature at which a free model writes broken calls."""
    requests = [
        ChatRequest(
            messages=[{"role": "user", "content": f"Book the room {seed}."}],
            tools=[{"type": "function", "function": TOOL}],
            max_tokens=100,
            temperature=2.0,
            seed=seed,
        )
        for seed in range(24)
    ]

    async def all_of_them() -> list[ChatResult]:
        return await asyncio.gather(*map(policy.chat, requests))

    try:
        return asyncio.run(all_of_them())
    finally:
        policy.close()


def broken(found: list[ChatResult]) -> list[str]:
    """Return the calls of whole answers that the tool's schema does not allow."""
    checked = jsonschema.Draft202012Validator(SCHEMA)
    calls = [
        call
        for answer in found
        if answer.finish_reason != "length"
        for call in answer.tool_calls
    ]
    assert calls
    return [
        call.arguments
        for call in calls
        if call.name != TOOL["name"] or not checked.is_valid(json.loads(call.arguments))
    ]


@pytest.mark.parametrize(
    ("constrain", "holds"), [("auto", True), ("calls", True), ("none", False)]
)
def test_a_trained_agents_calls_follow_the_schemas_unless_switched_off(
    agent: TrainedAgent, constrain: Constrain, holds: bool
) -> None:
    loaded = TrainedAgent.load(agent.path, constrain=constrain)
    found = answers(loaded.load_policy())
    assert (not broken(found)) is holds
    assert any(answer.grammar for answer in found) is holds


@pytest.mark.parametrize(
    ("given", "loaded", "holds"),
    [("auto", "auto", True), ("none", "auto", False), ("auto", "none", False)],
)
def test_an_evaluation_restricts_calls_unless_switched_off(
    agent: TrainedAgent,
    monkeypatch: pytest.MonkeyPatch,
    given: Constrain,
    loaded: Constrain,
    holds: bool,
) -> None:
    found: list[Grammar | None] = []
    of = Grammars.of

    def seen(self: Grammars, request: ChatRequest, prompt_end: str) -> Grammar | None:
        found.append(of(self, request, prompt_end))
        return found[-1]

    monkeypatch.setattr(Grammars, "of", seen)
    Trainer(
        TrainingConfig.create(gpu="none", constrain=given), progress=False
    ).evaluate(
        agent.scenario,
        agent=TrainedAgent.load(agent.path, constrain=loaded),
        tasks=2,
        samples=1,
        baselines=False,
    )
    assert found
    assert all(each is not None for each in found) is holds
