"""AgentGym: train existing agents to call their tools, by reinforcement learning.

::

    from agentgym import Trainer

    result = Trainer().train("coding", framework="langchain")
    agent = result.to_langchain()

Public names are imported at first use, so that ``import agentgym`` is quick.
"""

from typing import TYPE_CHECKING

from agentgym.lazy import lazily

if TYPE_CHECKING:
    from agentgym.core.config import TrainingConfig as TrainingConfig
    from agentgym.core.task import Split as Split
    from agentgym.core.task import Task as Task
    from agentgym.core.tools import tool as tool
    from agentgym.core.trajectory import Reward as Reward
    from agentgym.core.trajectory import Trajectory as Trajectory
    from agentgym.integrations.inner_reward import reward as reward
    from agentgym.plugins.logs.reviews import (
        record_review as record_review,
    )
    from agentgym.plugins.team.solving.solve import Solution as Solution
    from agentgym.plugins.team.solving.solve import solve as solve
    from agentgym.scenarios.base import Environment as Environment
    from agentgym.scenarios.base import Scenario as Scenario
    from agentgym.train.result import TrainingResult as TrainingResult
    from agentgym.train.trained_agent import TrainedAgent as TrainedAgent
    from agentgym.train.trainer import Trainer as Trainer
    from agentgym.version import __version__ as __version__
else:
    __getattr__, __dir__, __all__ = lazily(__spec__)
