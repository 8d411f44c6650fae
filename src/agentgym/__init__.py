"""AgentGym: train existing agents, by reinforcement learning, to call their tools.

::

    from agentgym import Trainer

    result = Trainer().train("coding", framework="langchain")
    agent = result.to_langchain()

The public names are imported when first used, so that ``import agentgym`` is quick.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from agentgym.version import __version__

if TYPE_CHECKING:
    from agentgym.core.config import TrainingConfig
    from agentgym.core.task import Split, Task
    from agentgym.core.tools import tool
    from agentgym.core.trajectory import Reward, Trajectory
    from agentgym.scenarios.base import Environment, Scenario
    from agentgym.train.result import TrainingResult
    from agentgym.train.trained_agent import TrainedAgent
    from agentgym.train.trainer import Trainer

_HOMES = {
    "Trainer": "agentgym.train.trainer",
    "TrainingConfig": "agentgym.core.config",
    "TrainingResult": "agentgym.train.result",
    "TrainedAgent": "agentgym.train.trained_agent",
    "Trajectory": "agentgym.core.trajectory",
    "Scenario": "agentgym.scenarios.base",
    "Environment": "agentgym.scenarios.base",
    "Reward": "agentgym.core.trajectory",
    "Split": "agentgym.core.task",
    "Task": "agentgym.core.task",
    "tool": "agentgym.core.tools",
}

__all__ = [
    "Environment",
    "Reward",
    "Scenario",
    "Split",
    "Task",
    "TrainedAgent",
    "Trainer",
    "TrainingConfig",
    "TrainingResult",
    "Trajectory",
    "__version__",
    "tool",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'agentgym' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
