"""TaskStream: choose training tasks; prefer families of tasks with a training signal.

A family is a kind of task. A group of attempts that all earn the same reward has no
training signal: its advantages are zero. Late in a run, most families have only such
groups. DAPO (arXiv:2503.14476), and the algorithm ``dapo``, sample until rewards differ
within enough groups, and discard the other groups. TaskStream helps any algorithm:
earlier groups predict which families are worth sampling, so that fewer rollouts are
wasted.
"""

from collections.abc import Callable, Sequence
from random import Random

from pydantic import BaseModel, Field

from agentgym.core.config import TrainingConfig
from agentgym.core.task import Split, Task
from agentgym.core.trajectory import Trajectory
from agentgym.engines.credit import call_failures, deviation, most_draws
from agentgym.scenarios.base import Scenario
from agentgym.scenarios.task_lists import make_tasks

_TASKS_PER_EPOCH = 1024
_NEWEST = 0.5
"""Weight of the newest group in the running mean :attr:`StreamState.spread`."""
_FULL_SPREAD = 0.3
"""Every task of a family is taken if the standard deviation of its rewards is at least
this, which is about that of one failure in eight attempts."""
_LEAST_SHARE = 0.25
"""Least probability of taking a task of a family, so that no family disappears."""


class StreamState(BaseModel, extra="forbid"):
    """The state of a :class:`TaskStream`; each checkpoint has a copy.

    Attributes:
        position: Number of training tasks taken or skipped so far.
        spread: For each family (kind of task), how much the rewards of a group differ:
            their standard deviation, averaged over groups; new groups count more.
    """

    position: int = 0
    spread: dict[str, float] = Field(default_factory=dict)


class TaskStream:
    """Chooses the training tasks of a scenario; state and seed determine the choice.

    After the scenario's last task, the first one comes again. With
    ``task_choice="adaptive"``, tasks are skipped at random, more often in families
    (kinds of tasks) with little training signal. The signal is measured on rewards
    minus the penalty ``failure_cost`` for failed tool calls. ``state`` is updated in
    place.
    """

    def __init__(
        self, scenario: Scenario, config: TrainingConfig, state: StreamState
    ) -> None:
        self._scenario = scenario
        self._config = config
        self._state = state
        self._epoch: tuple[int, list[Task]] = (-1, [])

    def take(self, count: int) -> list[Task]:
        """Return the next ``count`` tasks to train on."""
        chosen: list[Task] = []
        while len(chosen) < count:
            task = self._next()
            adaptive = self._config.task_choice == "adaptive"
            if not adaptive or self._draw() < self._share(task.family):
                chosen.append(task)
            self._state.position += 1
        return chosen

    def groups(
        self,
        room: int,
        attempt: Callable[[Sequence[Task], int], Sequence[Sequence[Trajectory]]],
        has_signal: Callable[[Sequence[Trajectory]], bool],
    ) -> list[Sequence[Trajectory]]:
        """Run a step's rollouts; return one group of attempts per task.

        The algorithm ``dapo`` attempts further tasks to replace groups without a
        training signal, while the budget allows it. Groups without a signal are
        returned too. They count for the budget and the run's record, but add nothing to
        the loss.

        ``room`` is the number of groups that the budget still allows; at least one
        group is sampled in any case. ``attempt`` runs the attempts at some tasks; its
        second argument is the number of groups that the step has so far.
        ``has_signal`` returns whether a group can be trained on.
        """
        groups: list[Sequence[Trajectory]] = []
        size, draws = self._config.tasks_per_step, most_draws(self._config.algorithm)
        wanted = max(1, min(size, room))
        for _ in range(draws):
            groups += attempt(self.take(wanted), len(groups))
            kept = sum(map(has_signal, groups)) if draws > 1 else size
            wanted = min(size - kept, room - len(groups))
            if wanted < 1:
                break
        return groups

    def learn(self, groups: Sequence[Sequence[Trajectory]]) -> None:
        """Update the training signal of each family of tasks from new groups."""
        spread, cost = self._state.spread, self._config.failure_cost
        for group in groups:
            rewards = [
                [t.reward - cost * count for count in call_failures(t)]
                for t in group
                if t.reward is not None and t.model_calls
            ]
            if len(rewards) > 1:
                family, new = group[0].family, deviation(rewards)
                old = spread.get(family, new)
                spread[family] = old + _NEWEST * (new - old)

    def _next(self) -> Task:
        number, offset = divmod(self._state.position, _TASKS_PER_EPOCH)
        if self._epoch[0] != number:
            seed = self._config.seed * 1_000_003 + number
            made = make_tasks(self._scenario, Split.TRAIN, seed, _TASKS_PER_EPOCH)
            self._epoch = (number, made)
        tasks = self._epoch[1]
        return tasks[offset % len(tasks)]

    def _draw(self) -> float:
        return Random(f"{self._config.seed}/{self._state.position}").random()

    def _share(self, family: str) -> float:
        spread = self._state.spread.get(family, _FULL_SPREAD)
        return _LEAST_SHARE + (1 - _LEAST_SHARE) * min(1.0, spread / _FULL_SPREAD)
