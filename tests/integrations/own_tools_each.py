"""A toy scenario whose tasks each have a tool of their own, made of a name."""

from typing import Any

from pydantic import create_model

from agentgym import Environment, Reward, Scenario, Split, Task, Trajectory
from agentgym.core.needs import NeededCall
from agentgym.core.tools import Tool, ToolSpec
from agentgym.scenarios.schemas import spec_of_openai

ROOMS = ("kitchen", "cellar", "Attic")


class Room(Environment):
    """Has one tool, whose name and argument are the room's."""

    def __init__(self, room: str) -> None:
        self.room = room
        self.made: list[Any] = []

    def tools(self) -> list[Tool]:
        return [Tool(self._heat_spec, self._heat), Tool(self._wait_spec, self._wait)]

    @property
    def _heat_spec(self) -> ToolSpec:
        name, told = f"heat_{self.room}", f"Heat the {self.room}."
        if self.room == "Attic":  # a tool that is known by its JSON schema alone
            degrees = {f"{self.room}_degrees": {"type": "integer"}}
            schema = {"type": "object", "properties": degrees, "required": [*degrees]}
            function = {"name": name, "description": told, "parameters": schema}
            return spec_of_openai({"type": "function", "function": function})
        fields: dict[str, Any] = {f"{self.room}_degrees": (int, ...)}
        return ToolSpec(name, told, create_model("Arguments", **fields))

    @property
    def _wait_spec(self) -> ToolSpec:
        return ToolSpec("wait", f"Wait in the {self.room}.", create_model("Nothing"))

    def _heat(self, **arguments: int) -> str:
        self.made.append(arguments)
        return "ok"

    def _wait(self) -> str:
        self.made.append("waited")
        return "ok"


class Rooms(Scenario):
    """Each task is about a room, and offers that room's tool."""

    name = "own_tools_each"
    description = "Heats rooms."
    difficulty = "beginner"
    estimated_time = "seconds"
    reward_range = (0.0, 1.0)

    def system_prompt(self) -> str:
        return "You heat rooms."

    def tools(self) -> list[ToolSpec]:
        return []

    def tasks(self, split: Split, seed: int, count: int) -> list[Task]:
        return [_task(split, seed, number) for number in range(count)]

    def create_environment(self, task: Task) -> Room:
        return Room(task.goal["room"])

    def calculate_reward(
        self, task: Task, environment: Environment, trajectory: Trajectory
    ) -> Reward:
        assert isinstance(environment, Room)
        solved = environment.made == [_arguments(task)]
        return Reward(
            value=float(solved),
            success=solved,
            right_tool=float(solved),
            right_arguments=float(solved),
        )

    def needed_calls(self, task: Task) -> list[NeededCall]:
        return [NeededCall(f"heat_{task.goal['room']}", _arguments(task))]


def _task(split: Split, seed: int, number: int) -> Task:
    room = ROOMS[number % len(ROOMS)]
    degrees = 1_000 * list(Split).index(split) + number
    return Task(
        id=f"{split}-{seed}-{number}",
        split=split,
        seed=seed,
        family="heat",
        level=1,
        instruction=f"Make it {degrees} in the {room}.",
        goal={"room": room, "degrees": degrees},
    )


def _arguments(task: Task) -> dict[str, int]:
    return {f"{task.goal['room']}_degrees": task.goal["degrees"]}


def make_agent(llm: Any, tools: list[Any]) -> Any:
    """Return a graph of LangChain's that is given its tools."""
    from langchain.agents import create_agent

    return create_agent(model=llm, tools=tools, system_prompt="You heat.")
