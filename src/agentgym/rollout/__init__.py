"""Run rollouts: an agent attempts a task, and a trajectory records each step.

To run rollouts without training, with any model::

    from agentgym.rollout import run_rollouts_sync

    batch = run_rollouts_sync(["What is 6 * 7?"], llm="openai:gpt-4.1-mini",
                              tools=["calculator"], save="out.jsonl")

``run_rollouts`` is in the subpackage ``solo``. The other modules run rollouts for
training and evaluation; see the README.
"""

from typing import TYPE_CHECKING

from agentgym.lazy import lazily

if TYPE_CHECKING:
    from agentgym.core.tools import tool as tool
    from agentgym.core.trajectory import RolloutStatus as RolloutStatus
    from agentgym.core.trajectory import Trajectory as Trajectory
    from agentgym.core.trajectory import TrajectoryStats as TrajectoryStats
    from agentgym.integrations.episode import Episode as Episode
    from agentgym.plugins.collect.agents import CodingAgent as CodingAgent
    from agentgym.plugins.collect.agents import ReactAgent as ReactAgent
    from agentgym.plugins.collect.agents import RolloutAgent as RolloutAgent
    from agentgym.plugins.collect.agents import ToolAgent as ToolAgent
    from agentgym.plugins.collect.batch import RolloutBatch as RolloutBatch
    from agentgym.plugins.collect.batch import run_rollouts as run_rollouts
    from agentgym.plugins.collect.batch import run_rollouts_sync as run_rollouts_sync
    from agentgym.plugins.collect.config import RolloutConfig as RolloutConfig
    from agentgym.plugins.collect.continuity import ContextLoss as ContextLoss
    from agentgym.plugins.collect.continuity import check_continuity as check_continuity
    from agentgym.rollout.summary import Summary as Summary
    from agentgym.rollout.summary import summarize as summarize
    from agentgym.rollout.trajectory_file import TrajectoryWriter as TrajectoryWriter
    from agentgym.rollout.trajectory_file import read_jsonl as read_jsonl
    from agentgym.rollout.trajectory_file import scan_jsonl as scan_jsonl
    from agentgym.rollout.trajectory_file import write_jsonl as write_jsonl
else:
    __getattr__, __dir__, __all__ = lazily(__spec__)
