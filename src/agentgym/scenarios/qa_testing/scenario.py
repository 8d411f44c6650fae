"""QaTestingScenario: tasks to write tests that detect faults in code."""

from collections.abc import Sequence
from typing import ClassVar, Literal

from agentgym.core.needs import NeededCall
from agentgym.core.task import Split, Task
from agentgym.core.tools import ToolSpec, tool_specs
from agentgym.core.trajectory import Reward, Trajectory
from agentgym.scenarios.base import Environment, own_environment
from agentgym.scenarios.coding.execution import AnySandbox
from agentgym.scenarios.leveled import LeveledScenario
from agentgym.scenarios.qa_testing import rewards
from agentgym.scenarios.qa_testing.environment import TestingEnvironment
from agentgym.scenarios.qa_testing.families import FAMILIES, TestingFamily

SYSTEM_PROMPT = (
    "You are a tester in a small Python project. The code is right. Use the tools, "
    "then answer in a few words. Rules: read a module before you test it; run a call "
    "to learn its value, then add it as a test; choose arguments for which wrong code "
    "would give another value."
)
_BY_OUTCOME = frozenset({"call", "expected"})


class QaTestingScenario(LeveledScenario[TestingFamily]):
    """Tasks to write tests for functions of generated Python packages.

    Args:
        sandbox: Sandbox for function calls and tests; the caller closes it. If None,
            the scenario opens a sandbox, and :meth:`close` closes it.
    """

    name: ClassVar[str] = "qa_testing"
    description: ClassVar[str] = "Write tests that kill mutants of Python code."
    difficulty: ClassVar[Literal["beginner", "intermediate", "advanced"]] = (
        "intermediate"
    )
    estimated_time: ClassVar[str] = "10 to 20 minutes on 2 cores"
    reward_range: ClassVar[tuple[float, float]] = (-1.0, 1.0)
    max_turns: ClassVar[int] = 12

    def __init__(self, sandbox: AnySandbox | None = None) -> None:
        self._given = sandbox

    def system_prompt(self) -> str:
        """Return the system prompt: the agent's role and its rules."""
        return SYSTEM_PROMPT

    def tools(self) -> list[ToolSpec]:
        """Return the agent's five tools."""
        return tool_specs(TestingEnvironment)

    def families(self) -> Sequence[TestingFamily]:
        """Return the families (kinds of task) of all levels."""
        return FAMILIES

    def make_task(
        self, family: TestingFamily, split: Split, seed: int, index: int
    ) -> Task:
        """Return the ``index``-th task of a family, the same for equal arguments."""
        return family.make_task(split, seed, index)

    def create_environment(self, task: Task) -> TestingEnvironment:
        """Return a new environment with the project that the task asks to test."""
        return TestingEnvironment(task.initial_state["files"], self._runs_in())

    def calculate_reward(
        self, task: Task, environment: Environment, trajectory: Trajectory
    ) -> Reward:
        """Score an episode by the agent's tests; see :func:`.rewards.score`."""
        own = own_environment(TestingEnvironment, environment)
        return rewards.score(task, own.books, trajectory, self._runs_in())

    def needed_calls(self, task: Task) -> list[NeededCall]:
        """Return the calls of the task's shortest solution.

        If the episode succeeds, any tested call and any expected value count as right.
        """
        return [
            NeededCall(tool, arguments, by_outcome=_BY_OUTCOME & set(arguments))
            for tool, arguments in task.goal["plan"]
        ]

    def _runs_in(self) -> AnySandbox:
        return self._given or self.sandbox
