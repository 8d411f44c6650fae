"""Trivial agents: what they call, and how an episode without a model is played."""

import itertools
import json
from enum import StrEnum
from typing import Any, ClassVar

import pytest
from pydantic import BaseModel

from agentgym import Environment, Reward, Scenario, Split, Task, Trajectory, tool
from agentgym.core.tools import ToolOutcome, ToolSpec, tool_specs
from agentgym.errors import RuleViolation, ToolError
from agentgym.evaluate.baselines import (
    CALL_EVERYTHING,
    Call,
    CallEverything,
    DoNothing,
    play,
    run_trivial,
)


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


class Size(BaseModel):
    width: int
    unit: str = "cm"


class Lamp(Environment):
    def __init__(self) -> None:
        self.on = False
        self.closed = 0

    @tool
    def switch_on(self) -> str:
        """Switch the lamp on."""
        self.on = True
        return "It is on."

    @tool
    async def paint(
        self,
        colour: Colour,
        sizes: list[Size],
        note: str | None = None,
        strength: float = 0.5,
    ) -> str:
        """Paint the lamp."""
        raise RuleViolation("no paint.")

    @tool
    def drop(self, height: int) -> str:
        """Drop the lamp."""
        raise ToolError(f"not from {height} m.")

    def close(self) -> None:
        self.closed += 1


class LampScenario(Scenario):
    name: ClassVar[str] = "lamp"

    def system_prompt(self) -> str:
        return "You look after a lamp."

    def tools(self) -> list[ToolSpec]:
        return tool_specs(Lamp)

    def tasks(self, split: Split, seed: int, count: int) -> list[Task]:
        return [
            Task(
                id=f"{split}-{seed}-{number}",
                split=split,
                seed=seed,
                family="on",
                level=1,
                instruction=f"Set 'hall lamp' to {40 + number}, please.",
            )
            for number in range(count)
        ]

    def create_environment(self, task: Task) -> Lamp:
        return Lamp()

    def calculate_reward(
        self, task: Task, environment: Environment, trajectory: Trajectory
    ) -> Reward:
        assert isinstance(environment, Lamp)
        assert environment.closed == 0
        calls = len(trajectory.get_tool_calls())
        right = environment.on and calls == 1
        return Reward(float(right), right, {"right": float(right)}, 1.0, 0.5)


SCENARIO = LampScenario()
[TASK] = SCENARIO.tasks(Split.TRAIN, 0, 1)


def test_doing_nothing_is_one_answer_and_a_score() -> None:
    trajectory = run_trivial(SCENARIO, TASK, DoNothing())
    reward = trajectory.score
    assert reward.value == trajectory.reward == 0.0
    assert [step.type for step in trajectory.steps] == ["model_call"]
    assert trajectory.model_calls[0].content
    assert (trajectory.family, trajectory.right_arguments) == ("on", 0.5)


@pytest.mark.parametrize("agent", CALL_EVERYTHING)
def test_call_everything_calls_each_tool_with_valid_arguments(
    agent: CallEverything,
) -> None:
    trajectory = run_trivial(SCENARIO, TASK, agent)
    calls = trajectory.get_tool_calls()
    assert len(calls) == 3 * agent.rounds
    assert {call.name: call.outcome for call in calls} == {
        "switch_on": ToolOutcome.OK,
        "paint": ToolOutcome.RULE_BROKEN,
        "drop": ToolOutcome.RAISED,
    }
    asked, answer = trajectory.model_calls
    assert [json.loads(c.arguments) for c in asked.tool_calls] == [
        call.arguments for call in calls
    ]
    assert not answer.tool_calls


def test_arguments_come_from_the_instruction_if_asked() -> None:
    numbers: set[Any] = set()
    notes: set[Any] = set()
    for seed in range(80):
        agent = CallEverything(seed=seed, from_instruction=True)
        for name, arguments in agent.calls(TASK, SCENARIO.tools()):
            if name == "drop":
                numbers.add(arguments["height"])
            notes |= {arguments["note"]} if "note" in arguments else set()
    assert numbers == {40}
    assert {"hall lamp", "please"} <= notes
    assert notes <= {" ".join(w) for w in _pairs(TASK.instruction)} | _words()


def _words() -> set[str]:
    return {word.strip("',.") for word in TASK.instruction.split()}


def _pairs(text: str) -> list[tuple[str, str]]:
    words = [word.strip("',.") for word in text.split()]
    return list(itertools.pairwise(words))


async def test_play_takes_an_environment_and_closes_it() -> None:
    lamp = Lamp()
    calls = [Call("switch_on", {}), Call("nothing_like_it", {"x": 1})]
    trajectory, reward = await play(SCENARIO, TASK, calls, environment=lamp)
    assert lamp.on
    assert lamp.closed == 1
    assert trajectory.get_tool_calls()[1].outcome is ToolOutcome.UNKNOWN_TOOL
    assert not reward.success
    assert (await play(SCENARIO, TASK, calls[:1]))[1].success
