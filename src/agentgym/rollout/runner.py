"""The runner: brings every rollout to an end, whatever happens to its worker."""

import logging
import threading
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from agentgym.core.task import Task
from agentgym.core.trajectory import Trajectory

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RolloutRequest:
    """One rollout to be made.

    Attributes:
        rollout_id: Unique; the random stream of its model calls follows from it.
        task: What to attempt.
        train: Whether it is sampled with the training settings.
        group: Rollouts of one group attempt the same task.
        step: The training step it belongs to.
    """

    rollout_id: str
    task: Task
    train: bool
    group: str
    step: int
