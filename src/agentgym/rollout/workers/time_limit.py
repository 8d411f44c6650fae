"""Running the code of others to its end, whatever it does."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from agentgym.core.trajectory import Reason
from agentgym.errors import RolloutError

_GRACE_S = 1.0


class CutOffError(RolloutError):
    """A rollout's work was cut off.

    Attributes:
        reason: What to record.
    """

    def __init__(self, kind: str, detail: str) -> None:
        self.reason = Reason(kind=kind, detail=detail)
        super().__init__(str(self.reason))


async def run_to_end[T](work: Coroutine[Any, Any, T], timeout_s: float) -> T:
    """Run ``work`` in a task of its own and return its result.

    What does not end in time is cancelled; what does not heed that either is left
    behind.

    Raises:
        CutOffError: It did not end in time, or something cancelled it.
        asyncio.CancelledError: The caller is cancelled, and the work with it.
        Exception: What the work raised.
    """
    task = asyncio.create_task(_contained(work))
    try:
        in_time, _ = await asyncio.wait({task}, timeout=timeout_s)
    finally:
        if not task.done():
            task.cancel()
            await asyncio.wait({task}, timeout=_GRACE_S)
            task.add_done_callback(_look_at)
    if not in_time:
        raise CutOffError("timeout", f"no end within {timeout_s:g} s")
    if task.cancelled():
        raise CutOffError("cancelled", "the agent or its model was cancelled")
    return task.result()


async def _contained[T](work: Coroutine[Any, Any, T]) -> T:
    try:
        return await work
    except SystemExit as error:  # an asyncio task would end the whole program
        raise RuntimeError(f"the agent called sys.exit({error.code!r})") from None


def _look_at(task: "asyncio.Task[Any]") -> None:
    """Take note of what became of work that was given up, so that nobody warns."""
    if not task.cancelled():
        task.exception()
