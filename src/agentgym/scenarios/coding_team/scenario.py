"""CodingTeamScenario: four roles solve small programming problems as a team."""

from collections.abc import Mapping
from random import Random
from typing import ClassVar, Literal

from agentgym.core.needs import NeededCall
from agentgym.core.task import Split, Task
from agentgym.core.tools import ToolSpec, tool_specs
from agentgym.core.trajectory import Reward, Trajectory
from agentgym.errors import UsageError
from agentgym.scenarios.base import Environment, Scenario, own_environment
from agentgym.scenarios.coding.execution import AnySandbox
from agentgym.scenarios.coding_team import rewards
from agentgym.scenarios.coding_team.environment import WRITING, TeamEnvironment
from agentgym.scenarios.coding_team.projects import FAMILIES, make_task
from agentgym.scenarios.rewards.static_checks import EXTRA, require_checks

SYSTEM_PROMPT = (
    "You are a coding team. Hand over to the generator, which writes the code; to the "
    "reviewer, who checks code that is not simple with lint and check_security; to the "
    "executor, who runs the tests; then finish."
)
GENERATORS = ("script", "policy")


class CodingTeamScenario(Scenario):
    """Tasks for a team: a supervisor, a generator, a reviewer and an executor.

    Args:
        generator: Writer of the code. With ``script``, a script writes it, and the
            policy learns the other roles. With ``policy``, the policy also writes it.
        sandbox: Sandbox for tests; the caller closes it. If None, the scenario opens a
            sandbox, and :meth:`close` closes it.

    Raises:
        UsageError: ``generator`` is not one of these two.
    """

    name: ClassVar[str] = "coding_team"
    description: ClassVar[str] = (
        "Lead a coding team: route, review and test the code of a generator."
    )
    difficulty: ClassVar[Literal["beginner", "intermediate", "advanced"]] = (
        "intermediate"
    )
    estimated_time: ClassVar[str] = "about 20 minutes on 2 cores"
    reward_range: ClassVar[tuple[float, float]] = (-1.0, 1.0)
    max_turns: ClassVar[int] = 10
    splits: ClassVar[tuple[Split, ...]] = tuple(Split)
    options: ClassVar[tuple[str, ...]] = ("generator",)
    extras: ClassVar[tuple[str, ...]] = (EXTRA,)
    agents: ClassVar[dict[str, str]] = {
        "langchain": "agentgym.scenarios.coding_team.agent:make_team"
    }

    def __init__(
        self, generator: str = "script", sandbox: AnySandbox | None = None
    ) -> None:
        if generator not in GENERATORS:
            known = " or ".join(GENERATORS)
            raise UsageError(
                f"The generator of coding_team is {known}, not {generator!r}."
            )
        self._is_scripted = generator == "script"
        self._given = sandbox

    def system_prompt(self) -> str:
        """Return the system prompt for a single agent that has all roles."""
        return SYSTEM_PROMPT

    def tools(self) -> list[ToolSpec]:
        """Return all roles' tools, except those that write code if a script writes."""
        found = tool_specs(TeamEnvironment)
        if not self._is_scripted:
            return found
        return [spec for spec in found if spec.name not in WRITING]

    def tasks(self, split: Split, seed: int, count: int) -> list[Task]:
        """Return ``count`` tasks, from each kind of task in turn.

        Raises:
            MissingExtraError: The reviewer's checks are not installed.
        """
        require_checks("The scenario coding_team")
        mixed = Random(0).sample(FAMILIES, len(FAMILIES))
        return [
            make_task(mixed[i % len(mixed)], split, seed, i // len(mixed))
            for i in range(count)
        ]

    def held_out(self, seed: int, count: int) -> dict[str, list[Task]]:
        """Return two sets of test tasks: ``held-out`` and ``out-of-vocabulary``.

        The second set is smaller. Its tasks have words that no other split uses.
        """
        return {
            "held-out": self.tasks(Split.TEST, seed, count),
            "out-of-vocabulary": self.tasks(
                Split.OUT_OF_VOCABULARY, seed, max(1, count // 6)
            ),
        }

    def create_environment(self, task: Task) -> TeamEnvironment:
        """Return a new environment whose project only has the tests of the task."""
        state = task.initial_state
        return TeamEnvironment(
            state["files"],
            self._runs_in(),
            target=state["target"],
            drafts=state["drafts"] if self._is_scripted else None,
        )

    def calculate_reward(
        self, task: Task, environment: Environment, trajectory: Trajectory
    ) -> Reward:
        """Score an episode: by its calls if a script writes code, else by its code."""
        own = own_environment(TeamEnvironment, environment)
        if self._is_scripted:
            return rewards.score_routing(task, own, trajectory)
        return rewards.score_outcome(task, own, trajectory, self._runs_in())

    def judge_changes(self, task: Task, changes: Mapping[str, str]) -> Reward | None:
        """Return the reward for changed files; None if a script writes the code."""
        if self._is_scripted:
            return None
        files = {**task.initial_state["files"], **changes}
        right = rewards.is_right(task, files, self._runs_in())
        value = rewards.CORRECT if right else 0.0
        return Reward(value, right, {"correct": value})

    def needed_calls(self, task: Task) -> list[NeededCall] | None:
        """Return the shortest solution's calls; None if the policy writes the code."""
        return rewards.needed(task) if self._is_scripted else None

    def notes(self) -> list[str]:
        """Return a note on the trained roles; empty if the policy writes the code."""
        if not self._is_scripted:
            return []
        note = (
            "A script plays the generator: the supervisor's routing and the tool calls "
            "of the reviewer and the executor are trained. `coding_team?generator="
            "policy` lets the model write the code, which is too hard for the shipped "
            "policy."
        )
        return [note]

    def _runs_in(self) -> AnySandbox:
        return self._given or self.sandbox
