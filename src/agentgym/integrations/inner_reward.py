"""reward: let an agent's own code reward model calls during an episode."""

import math
from collections.abc import Callable
from contextvars import ContextVar

from agentgym.errors import RewardError

_RECEIVER: ContextVar[Callable[[str, float], None] | None] = ContextVar(
    "agentgym_inner_reward", default=None
)

_runs_rollouts = False
"""Whether this process only runs episodes. New threads see this value; they would not
see a context variable."""


def reward(value: float, *, name: str = "inner") -> None:
    """Reward the agent's last model call.

    Call it in a node of a graph, in a tool, or in a scenario's ``calculate_reward``::

        import agentgym

        def grade_documents(state):
            relevant = [d for d in state["documents"] if is_relevant(d)]
            agentgym.reward(0.2 if relevant else -0.1, name="retrieval")
            return {"documents": relevant}

    In training, the value is added to the rollout's reward, as a part with this name.
    It is also added to the rewards of the last model call (``ModelCall.rewards``); see
    :meth:`agentgym.Scenario.broadcast_rewards`. It does not change whether the task
    counts as solved. Outside a rollout, e.g. in production, the function does nothing.

    Args:
        value: From -1e9 to 1e9; keep it small compared with the scenario's reward.
        name: Name of the part. Values with the same name are added up.

    Raises:
        RewardError: In a rollout, the value is not a number in this range, or the name
            is empty. Or a training process calls it outside of an episode, e.g. in a
            thread without the episode's context.
    """
    receive = _RECEIVER.get()
    if receive is None:
        if _runs_rollouts:
            raise RewardError(
                f"agentgym.reward got {value!r} for {name!r} outside of a rollout. "
                "If the agent starts its own threads, copy the context: "
                "contextvars.copy_context().run(...)"
            )
        return
    from agentgym.core.trajectory import MOST_REWARD

    if not isinstance(name, str) or not name.strip():
        raise RewardError(f"agentgym.reward got the name {name!r}: give it a text")
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not math.isfinite(value) or abs(value) > MOST_REWARD:
        raise RewardError(
            f"agentgym.reward got {value!r} for {name!r}: give it a number from "
            f"-{MOST_REWARD:g} to {MOST_REWARD:g}"
        )
    receive(name, float(value))


def receive_with(receiver: Callable[[str, float], None]) -> None:
    """Make :func:`reward` call ``receiver`` in this context and in its copies.

    The context is that of ``contextvars``, e.g. of an asyncio task.
    """
    _RECEIVER.set(receiver)


def refuse_outside_episodes() -> None:
    """Make :func:`reward` raise in this process if it is called without a receiver.

    A worker only runs episodes, so such a reward would be lost unnoticed.
    """
    global _runs_rollouts
    _runs_rollouts = True
