"""Attempt tasks with a policy, without training on them."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Protocol

from agentgym.core.task import Task
from agentgym.core.trajectory import RolloutStatus, Trajectory
from agentgym.errors import Interrupted, RolloutError
from agentgym.rollout.runner import RolloutRequest


class Rollouts(Protocol):
    """Runs rollouts, as a RolloutSession does with workers and a policy."""

    def run(
        self, requests: Sequence[RolloutRequest], on_done: Callable[[Trajectory], None]
    ) -> list[Trajectory]:
        """Run every request to its end; return trajectories in the same order."""

    def delete(self, rollout_ids: Iterable[str]) -> None:
        """Delete running or ended rollouts."""

    @property
    def troubles(self) -> list[str]:
        """Messages about model servers that failed, and so got no calls."""


def attempt(
    session: Rollouts,
    sets: Mapping[str, Sequence[Task]],
    samples: int,
    on_rollout: Callable[[Trajectory], None],
    *,
    step: int = 0,
) -> dict[str, list[Trajectory]]:
    """Attempt several sets of tasks with the policy, without training on them.

    All sets run together, so that a small set does not leave workers idle. ``step`` is
    the number of policy updates so far.
    """
    asked = [
        RolloutRequest(
            f"{group}-{sample:02d}", task, train=False, group=group, step=step
        )
        for name, tasks in sets.items()
        for index, task in enumerate(tasks)
        for group in [f"{name.replace(' ', '_')}-t{index:04d}"]
        for sample in range(samples)
    ]
    # A killed process may have left rollouts with these ids.
    session.delete(request.rollout_id for request in asked)
    try:
        made = session.run(asked, on_rollout)
    except Interrupted:  # a resumed run repeats them under the same ids
        session.delete(request.rollout_id for request in asked)
        raise
    rest = iter(made)
    by_set = {n: list(islice(rest, samples * len(sets[n]))) for n in sets}
    for name, found in by_set.items():
        if all(t.status is RolloutStatus.DROPPED for t in found):
            raise RolloutError(
                f"None of the {len(found)} rollouts of {name!r} could be scored: "
                f"{str(found[0].reason).rstrip('.')}."
            )
    return by_set
