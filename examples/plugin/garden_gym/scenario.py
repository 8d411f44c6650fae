"""The scenario ``garden``: water the bed that was named, and no other."""

from random import Random

from agentgym import Environment, Reward, Scenario, Split, Task, Trajectory, tool
from agentgym.core.needs import NeededCall
from agentgym.core.tools import ToolSpec, tool_specs

# Each split has words of its own, so that held-out tasks do not measure memory.
BEDS = {
    Split.TRAIN: ["roses", "tulips", "lettuce", "carrots", "mint", "leeks"],
    Split.VALIDATION: ["peas", "sage", "lilies"],
    Split.TEST: ["beans", "thyme", "irises", "radishes"],
}


class Garden(Environment):
    """One episode: the litres of water that each bed has got."""

    def __init__(self, beds: list[str]) -> None:
        self.litres = dict.fromkeys(beds, 0)

    @tool
    def water(self, bed: str, litres: int) -> str:
        """Water a bed of the garden."""
        self.litres[bed] = self.litres.get(bed, 0) + litres
        return f"{bed}: {litres} litres."

    @tool
    def list_beds(self) -> str:
        """List the beds of the garden."""
        return ", ".join(self.litres)


class GardenScenario(Scenario):
    """A policy learns to call ``water`` with the right bed and litres."""

    name = "garden"
    description = "Water the bed that was named."
    difficulty = "beginner"
    estimated_time = "about a minute on 2 cores"
    reward_range = (0.0, 1.0)

    def system_prompt(self) -> str:
        """Return the agent's role."""
        return "You water the beds of a garden."

    def tools(self) -> list[ToolSpec]:
        """Return the tools of a garden."""
        return tool_specs(Garden)

    def tasks(self, split: Split, seed: int, count: int) -> list[Task]:
        """Return tasks; each depends only on its number."""
        return [self._task(split, seed, number) for number in range(count)]

    def _task(self, split: Split, seed: int, number: int) -> Task:
        name = f"{split.value}/{seed}/{number}"
        rng = Random(name)
        goal = {"bed": rng.choice(BEDS[split]), "litres": rng.randint(2, 9)}
        return Task(
            id=name,
            split=split,
            seed=seed,
            family="water",
            level=1,
            instruction="Give {bed} {litres} litres of water".format(**goal),
            goal=goal,
        )

    def create_environment(self, task: Task) -> Garden:
        """Return a garden with the beds of the task's split."""
        return Garden(BEDS[task.split])

    def calculate_reward(
        self, task: Task, environment: Environment, trajectory: Trajectory
    ) -> Reward:
        """Score the state of the garden; the agent's answer does not count."""
        assert isinstance(environment, Garden)
        wanted = dict.fromkeys(BEDS[task.split], 0)
        wanted[task.goal["bed"]] = task.goal["litres"]
        right = environment.litres == wanted
        return Reward(float(right), right)

    def needed_calls(self, task: Task) -> list[NeededCall]:
        """Return the call that solves a task."""
        return [NeededCall("water", task.goal)]
