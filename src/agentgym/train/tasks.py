"""TaskStream: choose training tasks whose attempts are likely to end differently.

Attempts at one task that all earn the same reward change nothing: their advantages are
zero. With a probability of success p, the rewards of attempts vary by ``p (1 - p)``, so
tasks at p = 0.5 are best (arXiv:2502.12272). The stream knows p in two ways: a task
whose attempts differed is likely to differ again, so it comes back until its attempts
end alike; and new tasks are taken from families (kinds of tasks) in the proportion in
which attempts within a task of the family differed so far. A step asks at once for as
many tasks as probably suffice. Groups that are missing then are drawn once more (with
the algorithm ``dapo`` until there are enough, as in arXiv:2503.14476).
"""

import math
from collections.abc import Callable, Sequence
from random import Random
from statistics import fmean

from pydantic import Field

from agentgym.core.config import TrainingConfig
from agentgym.core.records import Record
from agentgym.core.task import Split, Task
from agentgym.core.trajectory import Trajectory
from agentgym.engines.credit import call_failures, deviation, most_draws
from agentgym.scenarios.base import Scenario
from agentgym.scenarios.task_lists import make_tasks

_TASKS_PER_EPOCH = 1024
_NEWEST = 0.3
"""Weight of the newest group in a mean over groups."""
_UNKNOWN = 0.25
"""Variance of a family without any group: that of successes at p = 0.5."""
_LEAST_SOLVED, _LEAST_FAILED = 0.1, 0.3
"""Least probability of taking a task of a family that always succeeds, or never does.
A family that never succeeded may still be learned."""
_AGAIN_SHARE = 0.5
"""Largest share of a step's tasks that the run has trained on before."""
_MOST_TIMES = 3
"""Number of groups after which a task does not come back."""
_DIFFER = 1e-6
"""Least variance of rewards that differ."""


class SeenTask(Record):
    """A task that was taken.

    Attributes:
        position: The task's position in the stream.
        times: Number of groups of attempts at it so far.
        variance: Variance of the rewards in the newest group.
    """

    position: int
    times: int = 0
    variance: float = 0.0


class Rewards(Record):
    """The rewards of groups of attempts so far, by name of a family or a task.

    Attributes:
        variance: The variance of the rewards within a group, averaged over groups; new
            groups count more.
        success: The success rate of attempts in the same way.
    """

    variance: dict[str, float] = Field(default_factory=dict)
    success: dict[str, float] = Field(default_factory=dict)

    def add(self, name: str, variance: float, success: float) -> None:
        """Add a group of attempts."""
        for means, new, unknown in (
            (self.variance, variance, _UNKNOWN),
            (self.success, success, success),
        ):
            old = means.get(name, unknown)
            means[name] = old + _NEWEST * (new - old)

    def share(self, name: str) -> float:
        """Return the probability of taking a task whose turn it is."""
        most = max(self.variance.values(), default=0.0)
        if name not in self.variance or most == 0:
            return 1.0
        failed = 1 - self.success[name]
        least = _LEAST_SOLVED + (_LEAST_FAILED - _LEAST_SOLVED) * failed
        return max(least, self.variance[name] / most)


class StreamState(Record):
    """The state of a :class:`TaskStream`; each checkpoint has a copy.

    Attributes:
        position: Number of training tasks taken or skipped so far.
        families: The rewards of each family (kind of task).
        tasks: The rewards of each task of a short list.
        again: Tasks to attempt again.
        differing: The share of a step's groups with a training signal, averaged over
            steps; new steps count more.
    """

    position: int = 0
    families: Rewards = Field(default_factory=Rewards)
    tasks: Rewards = Field(default_factory=Rewards)
    again: list[SeenTask] = Field(default_factory=list)
    differing: float = 1.0


class TaskStream:
    """Chooses the training tasks of a scenario; state and seed determine the choice.

    After the scenario's last task, the first one comes again. ``task_choice="uniform"``
    takes each task in turn; ``"adaptive"`` prefers tasks whose rewards vary. Rewards
    count minus the penalty ``failure_cost`` for failed tool calls. ``state`` is updated
    in place.
    """

    def __init__(
        self, scenario: Scenario, config: TrainingConfig, state: StreamState
    ) -> None:
        self._scenario = scenario
        self._config = config
        self._state = state
        self._is_adaptive = config.task_choice == "adaptive"
        self._epochs: dict[int, list[Task]] = {}
        self._taken: dict[str, SeenTask] = {}

    @property
    def trained(self) -> tuple[float, int] | None:
        """Success rate and number of training tasks; None while there are new ones."""
        if not self._is_short or self._state.position < len(self._tasks):
            return None
        return fmean(self._state.tasks.success.values()), len(self._tasks)

    def is_new(self, group: Sequence[Trajectory]) -> bool:
        """Return whether a group of the newest step is the first one of its task."""
        seen = self._taken.get(group[0].task_id)
        if seen is None or (self._is_short and seen.position >= len(self._tasks)):
            return False
        return seen.times == 0

    def take(self, count: int) -> list[Task]:
        """Return the next ``count`` tasks to train on."""
        state, chosen = self._state, []
        now = {seen.position for seen in self._taken.values()}
        again = [seen for seen in state.again if seen.position not in now]
        again.sort(key=lambda seen: -seen.variance)
        for seen in again[: int(_AGAIN_SHARE * count)]:
            state.again.remove(seen)
            chosen.append(self._at(seen.position))
            self._taken[chosen[-1].id] = seen
        while len(chosen) < count:
            task = self._at(state.position)
            if not self._is_adaptive or self._draw() < self._share(task):
                chosen.append(task)
                self._taken[task.id] = SeenTask(position=state.position)
            state.position += 1
        return chosen

    def groups(
        self,
        room: int,
        attempt: Callable[[Sequence[Task], int], Sequence[Sequence[Trajectory]]],
        has_signal: Callable[[Sequence[Trajectory]], bool],
    ) -> list[Sequence[Trajectory]]:
        """Run a step's rollouts; return one group of attempts per task.

        Further tasks replace groups without a training signal, while the budget allows
        it. These groups are returned too. They count for the budget and the run's
        record, but add nothing to the loss.

        ``room`` is the number of groups that the budget still allows; at least one
        group is sampled in any case. ``attempt`` runs the attempts at some tasks; its
        second argument is the number of groups that the step has so far.
        ``has_signal`` returns whether a group can be trained on.
        """
        groups: list[Sequence[Trajectory]] = []
        size, draws = self._config.tasks_per_step, most_draws(self._config)
        self._taken, state = {}, self._state
        # As many as probably suffice: a second, smaller draw takes longer per rollout.
        room = max(1, min(room, draws * size))
        wanted = min(math.ceil(size / max(state.differing, 1 / draws)), room)
        for _ in range(draws):
            made = attempt(self.take(wanted), len(groups))
            self.learn(made)
            groups += made
            kept = sum(map(has_signal, groups)) if draws > 1 else len(groups)
            wanted = min(size - kept, room - len(groups))
            if wanted < 1:
                break
        state.differing += _NEWEST * (kept / len(groups) - state.differing)
        return groups

    def learn(self, groups: Sequence[Sequence[Trajectory]]) -> None:
        """Update the variance of families, and remember tasks to attempt again."""
        state, cost = self._state, self._config.failure_cost
        for group in groups:
            rewards = [
                [t.reward - cost * count for count in call_failures(t)]
                for t in group
                if t.reward is not None and t.model_calls
            ]
            if len(rewards) < 2:
                continue
            variance = deviation(rewards) ** 2
            success = fmean(bool(t.success) for t in group)
            state.families.add(group[0].family, variance, success)
            if self._is_short:
                # Its tasks come again anyway, each at its own probability.
                state.tasks.add(group[0].task_id, variance, success)
            seen = self._taken.get(group[0].task_id)
            if seen is None or self._is_short or not self._is_adaptive:
                continue
            times = seen.times + 1
            if variance > _DIFFER and times < _MOST_TIMES:
                more = {"times": times, "variance": variance}
                state.again.append(seen.model_copy(update=more))

    @property
    def _tasks(self) -> list[Task]:
        """The tasks of the epoch that was used last."""
        return next(reversed(self._epochs.values()), [])

    @property
    def _is_short(self) -> bool:
        """Whether the scenario has so few tasks that they come again and again."""
        return 0 < len(self._tasks) < _TASKS_PER_EPOCH

    def _at(self, position: int) -> Task:
        number, offset = divmod(position, _TASKS_PER_EPOCH)
        if number not in self._epochs:
            seed = self._config.seed * 1_000_003 + number
            made = make_tasks(self._scenario, Split.TRAIN, seed, _TASKS_PER_EPOCH)
            self._epochs = {**self._epochs, number: made}
        tasks = self._epochs[number]
        return tasks[offset % len(tasks)]

    def _draw(self) -> float:
        return Random(f"{self._config.seed}/{self._state.position}").random()

    def _share(self, task: Task) -> float:
        """Return the probability of taking a task that is next in the stream."""
        if task.id in self._state.tasks.variance:
            return self._state.tasks.share(task.id)
        return self._state.families.share(task.family)
