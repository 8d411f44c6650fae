"""Measures what an update allocates."""

from collections.abc import Callable
from typing import Any

from torch.profiler import ProfilerActivity, profile

from agentgym.engines.base import TrainedToken, TrainingSequence


def peak(work: Callable[[], object]) -> int:
    """Return the most bytes that were allocated at once while ``work`` ran."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as recorded:
        work()
    events: Any = recorded.profiler.kineto_results.events()  # type: ignore[union-attr]
    changes = [(e.start_ns(), e.nbytes()) for e in events if e.name() == "[memory]"]
    held = most = 0
    for _, change in sorted(changes, key=lambda found: found[0]):
        held += change
        most = max(most, held)
    return most


def branching(longest: int) -> list[TrainingSequence]:
    """Return a group whose sequences share nearly all there may be."""
    made, head = [], longest - 240
    for number in range(8):
        ids = [5] * head + [(7 + number * n) % 250 for n in range(240)]
        trained = [TrainedToken(p, -5.0, 1.0) for p in range(head + 1, longest)]
        made.append(TrainingSequence("agent", 0, ids, trained))
    return made
