"""CodeReviewScenario: find planted defects, and report their files and lines."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from agentgym.core.needs import NeededCall
from agentgym.core.task import Split, Task
from agentgym.core.tools import ToolSpec, tool_specs
from agentgym.core.trajectory import Reward, Trajectory
from agentgym.scenarios.base import Environment, own_environment
from agentgym.scenarios.code_review import rewards
from agentgym.scenarios.code_review.environment import ReviewEnvironment
from agentgym.scenarios.code_review.families import FAMILIES, ReviewFamily
from agentgym.scenarios.leveled import LeveledScenario
from agentgym.scenarios.rewards.static_checks import EXTRA, require_checks

SYSTEM_PROMPT = (
    "You are a code reviewer in a small Python project. Use the tools, then answer in "
    "a few words. Rules: look at a file before you report; report each bug and each "
    "security problem with its file, line and kind, and nothing else; style is not "
    "reported."
)


class CodeReviewScenario(LeveledScenario[ReviewFamily]):
    """Tasks to find planted bugs and security problems in small Python packages.

    Raises:
        MissingExtraError: The extra ``code-quality`` is not installed.
    """

    name: ClassVar[str] = "code_review"
    description: ClassVar[str] = "Review small Python packages and report defects."
    difficulty: ClassVar[Literal["beginner", "intermediate", "advanced"]] = (
        "intermediate"
    )
    estimated_time: ClassVar[str] = "10 to 20 minutes on 2 cores"
    reward_range: ClassVar[tuple[float, float]] = (-1.0, 1.0)
    max_turns: ClassVar[int] = 9
    extras: ClassVar[tuple[str, ...]] = (EXTRA,)

    def __init__(self) -> None:
        require_checks("The scenario code_review")

    def system_prompt(self) -> str:
        """Return the system prompt: the agent's role and its rules."""
        return SYSTEM_PROMPT

    def tools(self) -> list[ToolSpec]:
        """Return the agent's five tools."""
        return tool_specs(ReviewEnvironment)

    def families(self) -> Sequence[ReviewFamily]:
        """Return the families (kinds of task) of all levels."""
        return FAMILIES

    def make_task(
        self, family: ReviewFamily, split: Split, seed: int, index: int
    ) -> Task:
        """Return the ``index``-th task of a family, the same for equal arguments."""
        return family.make_task(split, seed, index)

    def create_environment(self, task: Task) -> ReviewEnvironment:
        """Return a new environment with the project that the task asks to review."""
        return ReviewEnvironment(task.initial_state["files"])

    def calculate_reward(
        self, task: Task, environment: Environment, trajectory: Trajectory
    ) -> Reward:
        """Score a review by the agent's reports; see :func:`.rewards.score`."""
        own = own_environment(ReviewEnvironment, environment)
        return rewards.score(task, own.books, trajectory)

    def needed_calls(self, task: Task) -> list[NeededCall]:
        """Return the calls that lint or read the files, and report each defect."""
        return [NeededCall(tool, arguments) for tool, arguments in task.goal["plan"]]
