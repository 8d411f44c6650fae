"""Agents for rollouts: the loop between a model and tools.

- ``base``: :class:`RolloutAgent`, to subclass for one's own.
- ``tool``: native tool calling.
- ``react``: thoughts and actions as text, for models without tool calling.
- ``coding``: the tool agent with a shell, an editor and search in a workspace.
- ``registry``: by name, or ``module:Class``.
"""

from agentgym.rollout.solo.agents.base import RolloutAgent
from agentgym.rollout.solo.agents.registry import agent_names, get_agent

__all__ = ["RolloutAgent", "agent_names", "get_agent"]
