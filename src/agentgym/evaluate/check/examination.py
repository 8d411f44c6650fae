"""Examination: a scenario with tasks and episodes, the input of each tripwire."""

import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple

from agentgym.core.background import call_in_thread, in_background
from agentgym.core.task import Split, Task
from agentgym.core.tools import ToolSpec
from agentgym.core.trajectory import NO_REASON, Reward, RolloutStatus, Trajectory
from agentgym.evaluate.baselines import CALL_EVERYTHING, Call, DoNothing, attempt
from agentgym.integrations.episode import Episode
from agentgym.integrations.run import Ending
from agentgym.scenarios.base import Environment, Scenario
from agentgym.scenarios.task_lists import make_tasks, tools_of

ORACLE = "oracle"


@dataclass(frozen=True)
class Finding:
    """The result of a tripwire, a test that finds faults of a scenario."""

    name: str
    status: Literal["pass", "fail", "warn", "skip"]
    why: str


class Note(NamedTuple):
    """A remark of a tripwire, instead of its standard message."""

    status: Literal["pass", "warn", "skip"]
    why: str


@dataclass(frozen=True)
class Played:
    """An episode that an agent without a model played.

    Attributes:
        trajectory: The episode; None if a tool or the environment raised an exception.
        scored: The value that ``calculate_reward`` returned; None if it raised.
        error: A description of the exception; empty without an exception.
    """

    task: Task
    agent: str
    trajectory: Trajectory | None
    scored: Any
    error: str

    @property
    def reward(self) -> Reward | None:
        """The score; None if ``calculate_reward`` did not return a Reward."""
        return self.scored if isinstance(self.scored, Reward) else None

    def traces(self) -> str:
        """Return as text all results that must be equal if the episode is repeated."""
        calls = self.trajectory.get_tool_calls() if self.trajectory else []
        steps = [[c.name, c.arguments, c.outcome, c.result] for c in calls]
        return json.dumps([steps, repr(self.scored), self.error], sort_keys=True)


@dataclass
class _AsReturned(Ending):
    """Records the result of ``calculate_reward`` for an episode, or its exception."""

    scenario: Scenario
    scored: Any = None
    error: str = ""

    async def score(
        self, episode: Episode, environment: Environment, trajectory: Trajectory
    ) -> Trajectory:
        try:
            self.scored = await call_in_thread(
                self.scenario.calculate_reward, episode.task, environment, trajectory
            )
        except Exception as error:  # noqa: BLE001 - the scenario's own code
            self.error = f"{type(error).__name__}: {error}"
        return trajectory


@dataclass
class Examination:
    """A scenario to test, with its tasks and episodes, which are made at first use."""

    reference: str
    scenario: Scenario
    count: int = 60
    seed: int = 0

    @cached_property
    def tasks(self) -> dict[Split, list[Task]]:
        """Tasks of each split: at most ``asked``, fewer if the scenario has fewer."""
        return {split: self._make(split) for split in self.scenario.splits}

    @cached_property
    def to_play(self) -> list[Task]:
        """The training tasks to play, at most ``count``."""
        return self._make(Split.TRAIN)[: self.count]

    @cached_property
    def tools(self) -> dict[str, list[ToolSpec]]:
        """The tools of each task to play, by task id."""
        return {task.id: tools_of(self.scenario, task) for task in self.to_play}

    @property
    def top(self) -> float:
        """The largest reward, positive or negative, that the scenario can give."""
        return max(map(abs, self.scenario.reward_range))

    @property
    def asked(self) -> int:
        """Number of tasks to request from each split: four times ``count``."""
        return 4 * self.count

    @cached_property
    def episodes(self) -> list[Played]:
        """Episodes of all agents without a model on the tasks to play."""
        made = [
            self.play(task, agent.name, agent.calls(task, self.tools[task.id]))
            for agent in (DoNothing(), *CALL_EVERYTHING)
            for task in self.to_play
        ]
        for task in self.to_play:
            if (calls := self.solution(task)) is not None:
                made.append(self.play(task, ORACLE, calls))
        return made

    def _make(self, split: Split) -> list[Task]:
        return make_tasks(self.scenario, split, self.seed, self.asked)

    def of(self, agent: str) -> dict[str, list[Reward]]:
        """Return the valid rewards of an agent, by family (kind) of tasks."""
        found: dict[str, list[Reward]] = defaultdict(list)
        for episode in self.episodes:
            if episode.agent == agent and episode.reward is not None:
                found[episode.task.family].append(episode.reward)
        return dict(found)

    def solution(self, task: Task) -> list[Call] | None:
        """Return the calls of a task's solution; None if the scenario lists none."""
        needed = self.scenario.needed_calls(task)
        if needed is None:
            return None
        return [Call(call.tool, dict(call.arguments)) for call in needed]

    def play(
        self,
        task: Task,
        agent: str,
        calls: Sequence[Call],
        environment: Environment | None = None,
    ) -> Played:
        """Play one episode; record an exception of the scenario's code, if any."""
        ending = _AsReturned(self.scenario)
        made = in_background(
            attempt(self.scenario, task, calls, environment=environment, ending=ending)
        )
        if made.status is RolloutStatus.DROPPED:
            reason = made.reason or NO_REASON
            return Played(task, agent, None, None, str(reason).removeprefix("crash: "))
        return Played(task, agent, made, ending.scored, ending.error)
