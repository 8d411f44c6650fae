"""A scenario of equal tasks, for packs that tests write: they say what is solved."""

from typing import Any, ClassVar, Literal

from agentgym import Environment, Scenario, Split, Task, tool
from agentgym.core.tools import ToolSpec, tool_specs


class Nothing(Environment):
    """There is nothing to be found."""

    @tool
    def look(self, place: str = "") -> str:
        """Look around."""
        return "nothing"


class Looking(Scenario):
    """Its packs score the rollouts."""

    description: ClassVar[str] = "Look around."
    difficulty: ClassVar[Literal["beginner"]] = "beginner"
    estimated_time: ClassVar[str] = "seconds"

    def system_prompt(self) -> str:
        return "You look."

    def tools(self) -> list[ToolSpec]:
        return tool_specs(Nothing)

    def tasks(self, split: Split, seed: int, count: int) -> list[Task]:
        return [
            Task(
                id=f"{split}-{seed}-{number}",
                split=split,
                seed=seed,
                family="look",
                level=1,
                **{"instruction": "Look.", **self.about(split, number)},
            )
            for number in range(count)
        ]

    def about(self, split: Split, number: int) -> dict[str, Any]:
        """Return fields of a task."""
        return {}

    def create_environment(self, task: Task) -> Environment:
        return Nothing()
