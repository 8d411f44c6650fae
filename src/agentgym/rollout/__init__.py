"""Rollouts: agents attempt tasks, and what happened becomes trajectories.

On their own, with any model and no training::

    from agentgym.rollout import run_rollouts_sync

    batch = run_rollouts_sync(["What is 6 * 7?"], llm="openai:gpt-4.1-mini",
                              tools=["calculator"], save="out.jsonl")

- ``batch``, ``config``, ``attempt``: many rollouts at a time, each brought to an end.
- ``agents``: the loops that decide what to do: react, tool, coding, or one's own.
- ``llm``: the models that they ask: a function, an endpoint, a provider.
- ``toolbox``: calculator, bash, file editor, search, or one's own functions.

The other files are the layer of training; see the README.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from agentgym.core.tools import tool
    from agentgym.core.trajectory import (
        RolloutStatus,
        Summary,
        Trajectory,
        TrajectoryStats,
        summarize,
    )
    from agentgym.integrations.episode import Episode
    from agentgym.rollout.solo.agents import (
        CodingAgent,
        ReactAgent,
        RolloutAgent,
        ToolAgent,
    )
    from agentgym.rollout.solo.batch import (
        RolloutBatch,
        run_rollouts,
        run_rollouts_sync,
    )
    from agentgym.rollout.solo.config import RolloutConfig
    from agentgym.rollout.solo.continuity import ContextLoss, check_continuity
    from agentgym.rollout.solo.trajectory_file import (
        TrajectoryWriter,
        read_jsonl,
        scan_jsonl,
        write_jsonl,
    )

_HOMES = {
    "Episode": "agentgym.integrations.episode",
    "CodingAgent": "agentgym.rollout.solo.agents",
    "ContextLoss": "agentgym.rollout.solo.continuity",
    "ReactAgent": "agentgym.rollout.solo.agents",
    "RolloutAgent": "agentgym.rollout.solo.agents",
    "RolloutBatch": "agentgym.rollout.solo.batch",
    "RolloutConfig": "agentgym.rollout.solo.config",
    "RolloutStatus": "agentgym.core.trajectory",
    "Summary": "agentgym.core.trajectory",
    "ToolAgent": "agentgym.rollout.solo.agents",
    "Trajectory": "agentgym.core.trajectory",
    "TrajectoryStats": "agentgym.core.trajectory",
    "TrajectoryWriter": "agentgym.rollout.solo.trajectory_file",
    "check_continuity": "agentgym.rollout.solo.continuity",
    "read_jsonl": "agentgym.rollout.solo.trajectory_file",
    "run_rollouts": "agentgym.rollout.solo.batch",
    "run_rollouts_sync": "agentgym.rollout.solo.batch",
    "scan_jsonl": "agentgym.rollout.solo.trajectory_file",
    "summarize": "agentgym.core.trajectory",
    "tool": "agentgym.core.tools",
    "write_jsonl": "agentgym.rollout.solo.trajectory_file",
}

__all__ = [
    "CodingAgent",
    "ContextLoss",
    "Episode",
    "ReactAgent",
    "RolloutAgent",
    "RolloutBatch",
    "RolloutConfig",
    "RolloutStatus",
    "Summary",
    "ToolAgent",
    "Trajectory",
    "TrajectoryStats",
    "TrajectoryWriter",
    "check_continuity",
    "read_jsonl",
    "run_rollouts",
    "run_rollouts_sync",
    "scan_jsonl",
    "summarize",
    "tool",
    "write_jsonl",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'agentgym.rollout' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
