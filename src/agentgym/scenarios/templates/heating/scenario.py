"""Heating: set the temperature of rooms, or switch their heating off."""

from random import Random
from typing import ClassVar, Literal

from agentgym import Environment, Reward, Scenario, Split, Task, Trajectory, tool
from agentgym.core.needs import NeededCall
from agentgym.core.tools import ToolOutcome, ToolSpec, tool_specs
from agentgym.errors import RuleViolation, ToolError

# Each split has its own words; otherwise held-out tasks would measure memory.
ROOMS = {
    Split.TRAIN: ["kitchen", "office", "hall", "garage", "bedroom"],
    Split.VALIDATION: ["attic", "library", "studio"],
    Split.TEST: ["cellar", "nursery", "pantry", "workshop"],
    Split.OUT_OF_VOCABULARY: ["conservatory", "scullery"],
}
PHRASES = {
    "set": ["set the {room} to {degrees} degrees", "make it {degrees} in the {room}"],
    "off": ["switch off the {room}", "turn the heating in the {room} off"],
}
OFF = 5


class House(Environment):
    """One episode: rooms and their temperatures."""

    def __init__(self, rooms: dict[str, int]) -> None:
        self.degrees = dict(rooms)  # A copy: the task must not change.

    @tool
    def read_temperature(self, room: str) -> str:
        """Read the temperature of a room."""
        return f"{self._known(room)}: {self.degrees[room]} degrees"

    @tool
    def set_temperature(self, room: str, degrees: int) -> str:
        """Set the temperature of a room, in degrees Celsius."""
        if degrees > 25:
            raise RuleViolation("25 degrees at most.")
        self.degrees[self._known(room)] = degrees
        return f"{room} is set to {degrees}."

    @tool
    def switch_off(self, room: str) -> str:
        """Switch off the heating of a room."""
        self.degrees[self._known(room)] = OFF
        return f"{room} is off."

    def _known(self, room: str) -> str:
        if room in self.degrees:
            return room
        raise ToolError(f"there is no room {room!r}.")


class HeatingScenario(Scenario):
    """A policy learns to call the right tool with the right room and temperature."""

    name: ClassVar[str] = "heating"
    description: ClassVar[str] = "Set the temperature that was asked for."
    difficulty: ClassVar[Literal["beginner", "intermediate", "advanced"]] = "beginner"
    estimated_time: ClassVar[str] = "about a minute on 2 cores"
    reward_range: ClassVar[tuple[float, float]] = (0.0, 1.0)
    splits: ClassVar[tuple[Split, ...]] = tuple(Split)

    def system_prompt(self) -> str:
        """Return the role and the rules."""
        return "You control the heating of a house. Rule: never more than 25 degrees."

    def tools(self) -> list[ToolSpec]:
        """Return the tools of a house."""
        return tool_specs(House)

    def tasks(self, split: Split, seed: int, count: int) -> list[Task]:
        """Return tasks, families in turn; each depends only on its number."""
        return [self._task(split, seed, number) for number in range(count)]

    def _task(self, split: Split, seed: int, number: int) -> Task:
        rng = Random(f"{split.value}/{seed}/{number}")
        family = list(PHRASES)[number % len(PHRASES)]
        rooms = {room: rng.randint(10, 20) for room in ROOMS[split]}
        room, degrees = rng.choice(ROOMS[split]), rng.randint(21, 25)
        return Task(
            id=f"{split.value}/{seed}/{number}",
            split=split,
            seed=seed,
            family=family,
            level=1,
            instruction=rng.choice(PHRASES[family]).format(room=room, degrees=degrees),
            initial_state=rooms,
            goal={"room": room, "degrees": degrees if family == "set" else OFF},
        )

    def create_environment(self, task: Task) -> House:
        """Return a house in the task's initial state."""
        return House(task.initial_state)

    def calculate_reward(
        self, task: Task, environment: Environment, trajectory: Trajectory
    ) -> Reward:
        """Score the final state; the agent's answer does not count."""
        assert isinstance(environment, House)
        wanted = {**task.initial_state, task.goal["room"]: task.goal["degrees"]}
        calls, [needed] = trajectory.get_tool_calls(), self.needed_calls(task)
        kept = all(call.outcome is not ToolOutcome.RULE_BROKEN for call in calls)
        brief = len(calls) <= 2  # Otherwise calling everything would pay.
        right = environment.degrees == wanted and brief and kept
        tried = brief and bool(trajectory.get_tool_calls(needed.tool))
        value = 1.0 if right else 0.2 * tried
        return Reward(value, right, right_tool=float(tried), right_arguments=value // 1)

    def needed_calls(self, task: Task) -> list[NeededCall]:
        """Return the calls that solve a task."""
        if task.family == "off":
            return [NeededCall("switch_off", {"room": task.goal["room"]})]
        return [NeededCall("set_temperature", task.goal)]

    def vocabulary(self, split: Split) -> set[str]:
        """Return the rooms of a split."""
        return set(ROOMS[split])
