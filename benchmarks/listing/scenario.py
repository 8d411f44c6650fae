"""A scenario with nothing to it: what rollouts cost is all that is to be seen."""

from agentgym import Environment, Reward, Scenario, Split, Task, Trajectory, tool
from agentgym.core.tools import ToolSpec, tool_specs


class Folder(Environment):
    """A folder that is always the same."""

    @tool
    def list_files(self, path: str = ".") -> str:
        """List the files in a folder."""
        return "app.py\ntests/test_app.py"


class ListingScenario(Scenario):
    """One tool call, one answer."""

    name = "listing"
    description = "List the files."
    difficulty = "beginner"
    estimated_time = "no time"

    def system_prompt(self) -> str:
        """Return the role."""
        return "Help."

    def tools(self) -> list[ToolSpec]:
        """Return the tool."""
        return tool_specs(Folder)

    def tasks(self, split: Split, seed: int, count: int) -> list[Task]:
        """Return as many tasks as are asked for, all alike."""
        return [
            Task(
                id=f"{split}-{seed}-{number}",
                split=split,
                seed=seed,
                family="list",
                level=1,
                instruction="List the files.",
            )
            for number in range(count)
        ]

    def create_environment(self, task: Task) -> Folder:
        """Return the folder."""
        return Folder()

    def calculate_reward(
        self, task: Task, environment: Environment, trajectory: Trajectory
    ) -> Reward:
        """Return the reward of a rollout that came to its end."""
        return Reward(1.0, True)
