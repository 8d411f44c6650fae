"""The coding team with a reward of your own: needless reviews cost more."""

from typing import ClassVar

from agentgym import Environment, Reward, Task, Trajectory
from agentgym.plugins.team.coding_team.environment import TeamEnvironment
from agentgym.plugins.team.coding_team.scenario import CodingTeamScenario

NEEDLESS = -0.1


class StrictTeam(CodingTeamScenario):
    """Charges for each review that the plan of a task does not have."""

    name: ClassVar[str] = "strict"
    description: ClassVar[str] = "Lead a coding team without needless reviews."

    def calculate_reward(
        self, task: Task, environment: Environment, trajectory: Trajectory
    ) -> Reward:
        """Add the part ``needless_reviews`` to the team's own score."""
        usual = super().calculate_reward(task, environment, trajectory)
        assert isinstance(environment, TeamEnvironment)
        needed = [need.arguments for need in self.needed_calls(task) or ()]
        made = [call.args for call in environment.books.calls]
        review = {"to": "reviewer"}
        needless = max(0, made.count(review) - needed.count(review))
        if not needless:
            return usual
        part = max(NEEDLESS * needless, -1.0 - usual.value)
        return Reward(
            usual.value + part,
            usual.success,
            {**usual.parts, "needless_reviews": part},
            usual.right_tool,
            usual.right_arguments,
        )
