"""CodingScenario: tasks to read, edit, test and repair small Python projects."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from agentgym.core.needs import NeededCall
from agentgym.core.task import Task
from agentgym.core.tools import ToolSpec, tool_specs
from agentgym.core.trajectory import Reward, Trajectory
from agentgym.packs.kit.leveled import LeveledScenario
from agentgym.scenarios.base import Environment, own_environment

from . import rewards
from .drafts import Family, Step
from .environment import CodingEnvironment
from .execution import AnySandbox
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

_BY_OUTCOME = frozenset({"old", "new", "query"})


class CodingScenario(LeveledScenario):
    """Tasks to find, read, edit, test and repair code in generated Python packages.

    Args:
        sandbox: Sandbox for tests and scripts; the caller closes it. If None, the
            scenario opens a sandbox, and :meth:`close` closes it.
    """

    name: ClassVar[str] = "coding"
    description: ClassVar[str] = (
        "Find, read, edit, test and repair code in a small Python package."
    )
    difficulty: ClassVar[Literal["beginner", "intermediate", "advanced"]] = "beginner"
    estimated_time: ClassVar[str] = "10 to 20 minutes on 2 cores"
    max_turns: ClassVar[int] = 9

    def __init__(self, sandbox: AnySandbox | None = None) -> None:
        self._given = sandbox

    def system_prompt(self) -> str:
        """Return the system prompt: the agent's role and its rules."""
        return SYSTEM_PROMPT

    def tools(self) -> list[ToolSpec]:
        """Return the agent's eight tools."""
        return tool_specs(CodingEnvironment)

    def families(self) -> Sequence[Family]:
        """Return the families (kinds of task) of all levels."""
        return FAMILIES

    def create_environment(self, task: Task) -> CodingEnvironment:
        """Return a new environment with the task's project."""
        return CodingEnvironment(task.initial_state["files"], self._runs_in())

    def calculate_reward(
        self, task: Task, environment: Environment, trajectory: Trajectory
    ) -> Reward:
        """Score an episode by its final files and its calls; see ``rewards.score``."""
        own = own_environment(CodingEnvironment, environment)
        return rewards.score(task, own, trajectory, self._runs_in())

    def needed_calls(self, task: Task) -> list[NeededCall]:
        """Return the calls of the task's shortest solution.

        If the episode succeeds, any text of an edit or of a search counts as right.
        """
        steps = map(Step.from_json, task.goal["plan"])
        return [
            NeededCall(step.tool, step.args, step.others, _BY_OUTCOME & set(step.args))
            for step in steps
        ]

    def success_criteria(self) -> dict[str, float]:
        """Return the goals at which training ends early.

        They are for validation tasks of levels 1 and 2.
        """
        return {
            "tool_reliability": 0.95,
            "success_rate": 0.95,
            "cost_reduction": 0.30,
        }

    def _runs_in(self) -> AnySandbox:
        return self._given or self.sandbox
