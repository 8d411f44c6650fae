"""CodingScenario: tasks to read, edit, test and repair small Python projects."""

from agentgym.core.task import Task
from agentgym.core.trajectory import Reward, Trajectory
from agentgym.scenarios.base import Environment, own_environment

from . import rewards
from .base import ProjectScenario
from .environment import CodingEnvironment
from .families import FAMILIES

ROLE = (
    "You are a coding agent in a small Python project. Use the tools, then answer in a "
    "few words. The tests of module m are in tests/test_m.py."
)
RULES = (
    "Rules: read a file before you edit or run it; run the tests after you edit; never "
    "change a file under tests/: if asked to, only read it."
)
SYSTEM_PROMPT = f"{ROLE} {RULES}"


class CodingScenario(ProjectScenario):
    """Tasks to find, read, edit, test and repair code in generated Python packages."""

    name = "coding"
    description = "Find, read, edit, test and repair code in a small Python package."
    difficulty = "beginner"
    estimated_time = "10 to 20 minutes on 2 cores"
    max_turns = 9
    prompt = SYSTEM_PROMPT
    environment = CodingEnvironment
    families = FAMILIES
    by_outcome = frozenset({"old", "new", "query"})

    def create_environment(self, task: Task) -> CodingEnvironment:
        """Return a new environment with the task's project."""
        return CodingEnvironment(task.initial_state["files"], self.sandbox)

    def calculate_reward(
        self, task: Task, environment: Environment, trajectory: Trajectory
    ) -> Reward:
        """Score an episode by its final files and its calls; see ``rewards.score``."""
        own = own_environment(CodingEnvironment, environment)
        return rewards.score(task, own, trajectory, self.sandbox)

    def success_criteria(self) -> dict[str, float]:
        """Return the goals at which training ends early.

        They are for validation tasks of levels 1 and 2.
        """
        return {"tool_reliability": 0.95, "success_rate": 0.95, "cost_reduction": 0.30}
