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
    from agentgym.core.continuity import ContextLoss, check_continuity
    from agentgym.core.statistics import Summary, TrajectoryStats, summarize
    from agentgym.core.tools import tool
    from agentgym.core.trajectory import RolloutStatus, Trajectory
    from agentgym.core.trajectory_file import (
        TrajectoryWriter,
        read_jsonl,
        scan_jsonl,
        write_jsonl,
    )
    from agentgym.rollout.agents.base import RolloutAgent
    from agentgym.rollout.agents.coding import CodingAgent
    from agentgym.rollout.agents.react import ReactAgent
    from agentgym.rollout.agents.tool import ToolAgent
    from agentgym.rollout.attempt import Attempt
    from agentgym.rollout.batch import (
        RolloutBatch,
        run_rollouts,
        run_rollouts_sync,
    )
    from agentgym.rollout.config import RolloutConfig

_HOMES = {
    "Attempt": "agentgym.rollout.attempt",
    "CodingAgent": "agentgym.rollout.agents.coding",
    "ContextLoss": "agentgym.core.continuity",
    "ReactAgent": "agentgym.rollout.agents.react",
    "RolloutAgent": "agentgym.rollout.agents.base",
    "RolloutBatch": "agentgym.rollout.batch",
    "RolloutConfig": "agentgym.rollout.config",
    "RolloutStatus": "agentgym.core.trajectory",
    "Summary": "agentgym.core.statistics",
    "ToolAgent": "agentgym.rollout.agents.tool",
    "Trajectory": "agentgym.core.trajectory",
    "TrajectoryStats": "agentgym.core.statistics",
    "TrajectoryWriter": "agentgym.core.trajectory_file",
    "check_continuity": "agentgym.core.continuity",
    "read_jsonl": "agentgym.core.trajectory_file",
    "run_rollouts": "agentgym.rollout.batch",
    "run_rollouts_sync": "agentgym.rollout.batch",
    "scan_jsonl": "agentgym.core.trajectory_file",
    "summarize": "agentgym.core.statistics",
    "tool": "agentgym.core.tools",
    "write_jsonl": "agentgym.core.trajectory_file",
}

__all__ = [
    "Attempt",
    "CodingAgent",
    "ContextLoss",
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
