"""The built-in agents: their loops, and what is recorded of them."""

import json
from typing import Any

import pytest

from agentgym.core.tools import ToolOutcome
from agentgym.core.trajectory import Reward
from agentgym.integrations.native import ReAct
from agentgym.models.reply import read_reply
from agentgym.plugins.collect.agents import get_agent
from agentgym.rollout import RolloutStatus, Trajectory, check_continuity, run_rollouts
from agentgym.scenarios.base import Environment, Scenario
from tests.rollout.scripted_llm import calling, saying


async def one(**options: Any) -> Trajectory:
    """Run one rollout and return it."""
    (found,) = (await run_rollouts(["What is 6 * 7?"], **options)).trajectories
    return found


def test_agents_are_found_by_name_and_by_module() -> None:
    assert [get_agent(n).name for n in ("coding", "react")] == ["coding", "react"]
    assert get_agent("tests.rollout.scripted_llm:Unreliable").name == "unreliable"


async def test_tool_agent_runs_tools_until_it_answers() -> None:
    llm = saying(calling("calculator", expression="6 * 7"), "It is 42.")
    found = await one(llm=llm, tools=["calculator"])
    assert found.answer == "It is 42."
    (call,) = found.get_tool_calls()
    assert (call.id, call.result, call.outcome) == ("c1", "42", ToolOutcome.OK)
    assert check_continuity(found) == []


async def test_tool_agent_tells_the_model_what_was_wrong_and_goes_on() -> None:
    broken = calling("calculator", "b")
    broken["tool_calls"][0]["function"]["arguments"] = '{"expression": '
    llm = saying(
        broken,
        calling("calculater", expression="1"),
        calling("calculator", expr="1"),
        calling("calculator", expression="1/0"),
        "I give up.",
    )
    found = await one(llm=llm, tools=["calculator"])
    assert found.status is RolloutStatus.SUCCEEDED
    assert [call.outcome for call in found.get_tool_calls()] == [
        ToolOutcome.MALFORMED,
        ToolOutcome.UNKNOWN_TOOL,
        ToolOutcome.INVALID_ARGUMENTS,
        ToolOutcome.RAISED,
    ]
    assert found.stats().tool_errors == 4
    assert found.model_calls[1].messages[-1]["content"].startswith("Error: ")


async def test_react_agent_reads_actions_from_text() -> None:
    llm = saying(
        'Thought: hm\nAction: calculator\nAction Input: {"expression": "6*7"}',
        "I am lost.",
        "Action: calculator\nAction Input: six times seven",
        "Thought: now I know\nFinal Answer: 42",
    )
    found = await one(llm=llm, agent="react", tools=["calculator"])
    assert found.answer == "42"
    outcomes = [call.outcome for call in found.get_tool_calls()]
    assert outcomes == [ToolOutcome.OK, ToolOutcome.MALFORMED]
    told = [call.messages[-1]["content"] for call in found.model_calls[1:]]
    assert told[0] == "Observation: 42"
    assert told[1].startswith("Observation: Error: write either")
    first = found.model_calls[0]
    assert first.tools == []
    assert "- calculator:" in first.messages[0]["content"]
    assert check_continuity(found) == []


@pytest.mark.parametrize(
    ("text", "step"),
    [
        ("Final Answer: 4\nbecause", "4\nbecause"),
        ("Action: a\nAction Input: {}", ("a", "{}")),
        ('Action: a\nAction Input:\n```json\n{"x": 1}\n```', ("a", '{"x": 1}')),
        ("I think so.", None),
    ],
)
def test_react_steps(text: str, step: tuple[str, str] | str | None) -> None:
    move = ReAct().read(read_reply(text))
    calls = [(call.name, call.arguments) for call in move.calls]
    assert [*calls, move.answer] == (
        [step, None] if isinstance(step, tuple) else [step]
    )
    assert bool(move.complaint) is (step is None)


async def test_coding_agent_works_in_a_workspace() -> None:
    task = {
        "instruction": "Make add() add.",
        "initial_state": {"files": {"app.py": "def add(a, b):\n    return a - b\n"}},
    }
    edit = {"command": "str_replace", "path": "app.py", "old_str": "a - b"}
    check = "python -c 'import app; print(app.add(1, 2))'"
    llm = saying(
        calling("search", query="def add"),
        calling("file_editor", **edit, new_str="a + b"),
        calling("bash", command=check),
        "Fixed.",
    )
    batch = await run_rollouts([task], llm=llm, agent="coding")
    (found,) = batch.trajectories
    results = [call.result for call in found.get_tool_calls()]
    assert results == ["app.py:1: def add(a, b):", "Edited app.py.", "3"]
    assert found.changed_files == {"app.py": "def add(a, b):\n    return a + b\n"}
    assert json.loads(json.dumps(found.to_dict()))["answer"] == "Fixed."


class TalkativeEnvironment(Environment):
    """Its user says one more thing."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def user_reply(self, message: str) -> str | None:
        self.heard.append(message)
        return "And then?" if len(self.heard) == 1 else None


class Talk(Scenario):
    """A conversation of two turns."""

    name = "talk"
    description = "Talk."
    difficulty = "beginner"
    estimated_time = "no time"

    def system_prompt(self) -> str:
        return "Talk."

    def tools(self) -> list[Any]:
        return []

    def tasks(self, split: Any, seed: int, count: int) -> list[Any]:
        return []

    def create_environment(self, task: Any) -> TalkativeEnvironment:
        return TalkativeEnvironment()

    def calculate_reward(
        self, task: Any, environment: Environment, trajectory: Trajectory
    ) -> Reward:
        assert isinstance(environment, TalkativeEnvironment)
        done = len(environment.heard) == 2
        return Reward(1.0 if done else 0.0, success=done)


@pytest.mark.parametrize("agent", ["tool", "react"])
async def test_users_of_scenarios_may_go_on_talking(agent: str) -> None:
    llm = saying("Final Answer: One.", "Final Answer: Two.")
    found = await one(llm=llm, agent=agent, reward=Talk())
    assert (found.success, found.reward) == (True, 1.0)
    assert len(found.model_calls) == 2
    assert found.model_calls[1].messages[-1]["content"] == "And then?"
    assert check_continuity(found) == []
