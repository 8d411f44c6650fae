"""A toy scenario: sums, with a tool that raises, a rule, and a tool nobody is told."""

from typing import Any

from agentgym import Environment, Reward, Scenario, Split, Task, Trajectory, tool
from agentgym.core.needs import NeededCall
from agentgym.core.tools import Tool, ToolSpec, tool_specs
from agentgym.errors import RuleViolation, ToolError

TURNS = 14


class Calculator(Environment):
    """Remembers its last result."""

    def __init__(self) -> None:
        self.result = 0

    def tools(self) -> list[Tool]:
        return [tool for tool in super().tools() if tool.spec.name != "peek"]

    @tool
    def add(self, a: int, b: int) -> str:
        """Add two numbers."""
        self.result = a + b
        return str(self.result)

    @tool
    def divide(self, a: int, b: int) -> str:
        """Divide one number by another."""
        if b == 0:
            raise ToolError("nothing can be divided by zero")
        self.result = a // b
        return str(self.result)

    @tool
    def clear(self) -> str:
        """Forget the result; forbidden."""
        raise RuleViolation("the result must not be forgotten")

    @tool
    def peek(self) -> str:
        """Look at the result; no agent is told of this tool."""
        return str(self.result)


class Sums(Scenario):
    """One and two make three; which attempts are lucky is known beforehand."""

    name = "calculator"
    description = "Sums."
    difficulty = "beginner"
    estimated_time = "seconds"
    max_turns = TURNS

    def system_prompt(self) -> str:
        return "You calculate."

    def tools(self) -> list[ToolSpec]:
        return [spec for spec in tool_specs(Calculator) if spec.name != "peek"]

    def tasks(self, split: Split, seed: int, count: int) -> list[Task]:
        return [
            Task(
                id=f"{split}-{seed}-{number}",
                split=split,
                seed=seed,
                family="sum",
                level=1,
                instruction="Add 1 and 2.",
            )
            for number in range(count)
        ]

    def create_environment(self, task: Task) -> Calculator:
        return Calculator()

    def calculate_reward(
        self, task: Task, environment: Environment, trajectory: Trajectory
    ) -> Reward:
        assert isinstance(environment, Calculator)
        solved = environment.result == 3
        lucky = task.split != Split.TRAIN or trajectory.rollout_id.endswith("1")
        return Reward(float(solved and lucky), solved and lucky)

    def needed_calls(self, task: Task) -> list[NeededCall]:
        return [NeededCall("add", {"a": 1, "b": 2})]


def offered(request: Any) -> set[str]:
    """Return the names of the tools that a request offers."""
    return {tool["function"]["name"] for tool in request.tools}


def said(request: Any) -> int:
    """Return how often the assistant has spoken in what a request holds."""
    return sum(message["role"] == "assistant" for message in request.messages)
